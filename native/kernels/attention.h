// Attention over blocks of 16 keys. A query's scores, weights and output are computed key by key in the order of the
// logical positions, so they do not depend on which queries share the tile, nor on whether a key comes from the cache
// or from the draft tree.
#pragma once

#include <type_traits>

#include "half.h"
#include "kernels.h"
#include "kernels/rowwise.h"

namespace foredraft {
namespace {

constexpr int kBlock = 16;

// Scores of kQueries queries against one block: sixteen keys at once, summed over the head's width in order.
template <class V, int kQueries>
inline void score_block(const float* queries, int width, const uint16_t* keys, float* scores, size_t stride) {
  typename V::F32 sums[kQueries];
  for (int q = 0; q < kQueries; ++q) sums[q] = V::zero();
  for (int e = 0; e < width; ++e) {
    const auto k = V::from_half(keys + e * kBlock);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) sums[q] = V::fma(V::broadcast(queries[q * width + e]), k, sums[q]);
  }
  for (int q = 0; q < kQueries; ++q) V::store(scores + static_cast<size_t>(q) * stride, sums[q]);
}

// Adds weights times values of one block to kQueries outputs, 16 columns at `column`, key after key.
template <class V, int kQueries>
inline void add_values(const float* weights, size_t stride, const uint16_t* values, int width, int column,
                       typename V::F32* totals) {
  for (int key = 0; key < kBlock; ++key) {
    const auto v = V::from_half(values + key * width + column);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      totals[q] = V::fma(V::broadcast(weights[static_cast<size_t>(q) * stride + static_cast<size_t>(key)]), v, totals[q]);
    }
  }
}

// The blocks that query `q` sees, in order: shared ones, then those of its own row.
struct BlockList {
  const uint16_t* const* blocks;
  int num_shared, num_own;

  const uint16_t* at(int row, int index) const {
    return index < num_shared ? blocks[index] : blocks[num_shared + row * num_own + index - num_shared];
  }
};

template <class V, int kQueries>
void score_queries(const AttentionTile& t, const BlockList& keys, int first, int row, int begin, int end) {
  const size_t stride = static_cast<size_t>(t.num_blocks) * kBlock;
  for (int b = begin; b < end; ++b) {
    score_block<V, kQueries>(t.queries + first * t.head_width, t.head_width, keys.at(row, b),
                             t.scores + static_cast<size_t>(first) * stride + static_cast<size_t>(b) * kBlock, stride);
  }
}

// Turns the scores of one query into weights that sum to 1; masked keys get weight 0.
template <class V>
void normalize(const AttentionTile& t, int query) {
  const size_t stride = static_cast<size_t>(t.num_blocks) * kBlock;
  float* const scores = t.scores + static_cast<size_t>(query) * stride;
  const int position = t.positions[query];
  const int oldest = t.window > 0 && position >= t.window ? position - t.window + 1 : 0;
  const auto lowest = V::broadcast(-INFINITY);
  auto best = lowest;
  for (int b = 0; b < t.num_blocks; ++b) {
    const int start = (t.first_block + b) * kBlock;
    uint32_t seen = 0;
    for (int i = 0; i < kBlock; ++i) seen |= static_cast<uint32_t>(start + i >= oldest && start + i <= position) << i;
    auto s = V::load(scores + b * kBlock);
    if (t.softcap > 0.0f) {
      s = V::mul(V::broadcast(t.softcap), tanh_of<V>(V::mul(s, V::broadcast(1.0f / t.softcap))));
    }
    s = V::select(seen, s, lowest);
    V::store(scores + b * kBlock, s);
    best = V::max(best, s);
  }
  float lanes[16];
  V::store(lanes, best);
  float largest = lanes[0];
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  auto sum = V::zero();
  const auto shift = V::broadcast(largest);
  for (int b = 0; b < t.num_blocks; ++b) {
    const auto s = V::load(scores + b * kBlock);
    const auto e = V::keep_if_greater(exponential<V>(V::sub(s, shift)), s, lowest);
    V::store(scores + b * kBlock, e);
    sum = V::add(sum, e);
  }
  const auto inverse = V::broadcast(1.0f / add_lanes<V>(sum));
  for (int b = 0; b < t.num_blocks; ++b) {
    V::store(scores + b * kBlock, V::mul(V::load(scores + b * kBlock), inverse));
  }
}

template <class V, int kQueries>
void mix_queries(const AttentionTile& t, const BlockList& values, int first, int row) {
  const size_t stride = static_cast<size_t>(t.num_blocks) * kBlock;
  const float* const weights = t.scores + static_cast<size_t>(first) * stride;
  for (int column = 0; column < t.head_width; column += 16) {
    typename V::F32 totals[kQueries];
    for (int q = 0; q < kQueries; ++q) totals[q] = V::zero();
    for (int b = 0; b < t.num_blocks; ++b) {
      add_values<V, kQueries>(weights + b * kBlock, stride, values.at(row, b), t.head_width, column, totals);
    }
    for (int q = 0; q < kQueries; ++q) V::store(t.out + (first + q) * t.head_width + column, totals[q]);
  }
}

// Calls step<n>(first query, row) over runs of at most 8 queries that see the same blocks.
template <class Step>
void for_runs(int num_queries, int run, Step step) {
  for (int start = 0; start < num_queries; start += run) {
    const int row = start / run;
    const int end = start + run < num_queries ? start + run : num_queries;
    int q = start;
    for (; q + 8 <= end; q += 8) step(std::integral_constant<int, 8>(), q, row);
    for (; q + 4 <= end; q += 4) step(std::integral_constant<int, 4>(), q, row);
    for (; q + 2 <= end; q += 2) step(std::integral_constant<int, 2>(), q, row);
    for (; q < end; ++q) step(std::integral_constant<int, 1>(), q, row);
  }
}

template <class V>
void attention(const AttentionTile& t) {
  const int shared = t.shared_blocks - t.first_block;
  const int own = t.num_blocks - shared;
  const BlockList keys{t.keys, shared, own}, values{t.values, shared, own};
  for_runs(t.num_queries, t.num_queries, [&](auto n, int first, int) {
    score_queries<V, decltype(n)::value>(t, keys, first, 0, 0, shared);
  });
  const int run = own > 0 ? t.queries_per_row : t.num_queries;
  if (own > 0) {
    for_runs(t.num_queries, run, [&](auto n, int first, int row) {
      score_queries<V, decltype(n)::value>(t, keys, first, row, shared, t.num_blocks);
    });
  }
  for (int q = 0; q < t.num_queries; ++q) normalize<V>(t, q);
  for_runs(t.num_queries, run, [&](auto n, int first, int row) {
    mix_queries<V, decltype(n)::value>(t, values, first, row);
  });
}

template <class V>
void store_key(const float* x, int width, uint16_t* block, int lane) {
  uint16_t halves[16];
  for (int e = 0; e < width; e += 16) {
    V::to_half(halves, V::load(x + e));
    for (int i = 0; i < 16; ++i) block[(e + i) * kBlock + lane] = halves[i];
  }
}

// Values are kept finite: one that is not would reach every query whose blocks hold its slot, since 0 * inf is NaN,
// among them those of a later owner of the block.
template <class V>
void store_value(const float* x, int width, uint16_t* block, int lane) {
  const auto bound = V::broadcast(65504.0f), minus_bound = V::broadcast(-65504.0f);
  for (int e = 0; e < width; e += 16) {
    V::to_half(block + lane * width + e, V::min(V::max(V::load(x + e), minus_bound), bound));
  }
}

}  // namespace
}  // namespace foredraft
