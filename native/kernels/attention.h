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

// Sums that are in the making at once: enough to keep the multipliers busy while each waits for its last product, and
// as many as the registers hold besides what is multiplied.
template <class V>
constexpr int kSums = V::kMaxRows >= 8 ? 16 : 4;

// Scores of kQueries queries against kBlocks blocks of sixteen keys, each summed over the head's width in order.
template <class V, int kQueries, int kBlocks>
inline void score_blocks(const float* queries, int width, const uint16_t* const* keys, float* scores, size_t stride) {
  typename V::F32 sums[kBlocks][kQueries];
  for (auto& of_block : sums) {
    for (auto& sum : of_block) sum = V::zero();
  }
  for (int e = 0; e < width; ++e) {
    typename V::F32 k[kBlocks];
#pragma GCC unroll 16
    for (int b = 0; b < kBlocks; ++b) k[b] = V::from_half(keys[b] + e * kBlock);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const auto x = V::broadcast(queries[q * width + e]);
#pragma GCC unroll 16
      for (int b = 0; b < kBlocks; ++b) sums[b][q] = V::fma(x, k[b], sums[b][q]);
    }
  }
  for (int b = 0; b < kBlocks; ++b) {
    for (int q = 0; q < kQueries; ++q) V::store(scores + static_cast<size_t>(q) * stride + b * kBlock, sums[b][q]);
  }
}

// Adds weights times values of one block to kQueries outputs, in kGroups groups of 16 columns, key after key.
template <class V, int kQueries, int kGroups>
inline void add_values(const float* weights, size_t stride, const uint16_t* values, int width,
                       typename V::F32 (&totals)[kGroups][kQueries]) {
  for (int key = 0; key < kBlock; ++key) {
    typename V::F32 v[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) v[g] = V::from_half(values + key * width + g * 16);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const auto x = V::broadcast(weights[static_cast<size_t>(q) * stride + static_cast<size_t>(key)]);
#pragma GCC unroll 16
      for (int g = 0; g < kGroups; ++g) totals[g][q] = V::fma(x, v[g], totals[g][q]);
    }
  }
}

// The blocks that query `q` sees, in order: shared ones, then those of its own row.
struct BlockList {
  const uint16_t* const* blocks;
  int num_shared, num_own;

  // Those from `index` on, up to the last shared one or the row's last one.
  const uint16_t* const* from(int row, int index) const {
    return blocks + (index < num_shared ? index : num_shared + row * num_own + index - num_shared);
  }
};

template <class V, int kQueries, int kBlocks = kSums<V> / kQueries>
void score_queries(const AttentionTile& t, const BlockList& keys, int first, int row, int begin, int end) {
  const size_t stride = static_cast<size_t>(t.num_blocks) * kBlock;
  int b = begin;
  for (; b + kBlocks <= end; b += kBlocks) {
    score_blocks<V, kQueries, kBlocks>(t.queries + first * t.head_width, t.head_width, keys.from(row, b),
                                       t.scores + static_cast<size_t>(first) * stride + static_cast<size_t>(b) * kBlock,
                                       stride);
  }
  if constexpr (kBlocks > 1) score_queries<V, kQueries, kBlocks / 2>(t, keys, first, row, b, end);
}

// One bit for each key of a block: set from the oldest that is seen up to the end, both counted from its first key.
inline uint32_t seen_keys(int oldest, int end) {
  const int low = oldest < 0 ? 0 : oldest < kBlock ? oldest : kBlock, high = end < 0 ? 0 : end < kBlock ? end : kBlock;
  return ((1u << high) - 1u) & ~((1u << low) - 1u);
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
    auto s = V::load(scores + b * kBlock);
    if (t.softcap > 0.0f) {
      s = V::mul(V::broadcast(t.softcap), tanh_of<V>(V::mul(s, V::broadcast(1.0f / t.softcap))));
    }
    s = V::select(seen_keys(oldest - start, position + 1 - start), s, lowest);
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

template <class V, int kQueries, int kGroups = kSums<V> / kQueries>
void mix_queries(const AttentionTile& t, const BlockList& values, int first, int row, int begin) {
  const size_t stride = static_cast<size_t>(t.num_blocks) * kBlock;
  const float* const weights = t.scores + static_cast<size_t>(first) * stride;
  int column = begin;
  for (; column + 16 * kGroups <= t.head_width; column += 16 * kGroups) {
    typename V::F32 totals[kGroups][kQueries];
    for (auto& of_group : totals) {
      for (auto& total : of_group) total = V::zero();
    }
    for (int b = 0; b < t.num_blocks; ++b) {
      add_values<V, kQueries, kGroups>(weights + b * kBlock, stride, *values.from(row, b) + column, t.head_width,
                                       totals);
    }
    for (int g = 0; g < kGroups; ++g) {
      for (int q = 0; q < kQueries; ++q) {
        V::store(t.out + (first + q) * t.head_width + column + 16 * g, totals[g][q]);
      }
    }
  }
  if constexpr (kGroups > 1) mix_queries<V, kQueries, kGroups / 2>(t, values, first, row, column);
}

// Calls step<n>(first query, row) over runs of at most kMost queries that see the same blocks.
template <int kMost, class Step>
void for_runs(int num_queries, int run, Step step) {
  for (int start = 0; start < num_queries; start += run) {
    const int row = start / run;
    const int end = start + run < num_queries ? start + run : num_queries;
    int q = start;
    if constexpr (kMost >= 8) {
      for (; q + 8 <= end; q += 8) step(std::integral_constant<int, 8>(), q, row);
    }
    for (; q + 4 <= end; q += 4) step(std::integral_constant<int, 4>(), q, row);
    for (; q + 2 <= end; q += 2) step(std::integral_constant<int, 2>(), q, row);
    for (; q < end; ++q) step(std::integral_constant<int, 1>(), q, row);
  }
}

template <class V>
void attention(const AttentionTile& t) {
  constexpr int kMost = kSums<V> >= 8 ? 8 : 4;
  const int shared = t.shared_blocks - t.first_block;
  const int own = t.num_blocks - shared;
  const BlockList keys{t.keys, shared, own}, values{t.values, shared, own};
  for_runs<kMost>(t.num_queries, t.num_queries, [&](auto n, int first, int) {
    score_queries<V, decltype(n)::value>(t, keys, first, 0, 0, shared);
  });
  const int run = own > 0 ? t.queries_per_row : t.num_queries;
  if (own > 0) {
    for_runs<kMost>(t.num_queries, run, [&](auto n, int first, int row) {
      score_queries<V, decltype(n)::value>(t, keys, first, row, shared, t.num_blocks);
    });
  }
  for (int q = 0; q < t.num_queries; ++q) normalize<V>(t, q);
  for_runs<kMost>(t.num_queries, run, [&](auto n, int first, int row) {
    mix_queries<V, decltype(n)::value>(t, values, first, row, 0);
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
