#include "tests/scenario.h"

#include <algorithm>
#include <numeric>

#include "half.h"

namespace foredraft {
namespace testing {

std::vector<int> Request::path(int node) const {
  std::vector<int> nodes_up;
  for (; node >= 0; node = parents[static_cast<size_t>(node)]) nodes_up.push_back(node);
  return {nodes_up.rbegin(), nodes_up.rend()};
}

std::vector<Request> random_requests(Random& random, int num_requests, int longest_prefix, int most_nodes,
                                     int vocabulary) {
  std::vector<Request> requests(static_cast<size_t>(num_requests));
  for (Request& r : requests) {
    const int prefix = random.range(0, longest_prefix), nodes = random.range(1, most_nodes);
    for (int i = 0; i < prefix; ++i) r.prefix.push_back(random.range(0, vocabulary - 1));
    for (int i = 0; i < nodes; ++i) {
      r.nodes.push_back(random.range(0, vocabulary - 1));
      r.parents.push_back(i == 0 ? -1 : random.chance(0.5) ? i - 1 : random.range(0, i - 1));
    }
  }
  return requests;
}

Cache::Cache(const CacheShape& shape, size_t num_blocks, Random& random) : num_blocks_(num_blocks) {
  const size_t size = shape.layers * num_blocks * shape.kv_heads * shape.head_width * kBlockPositions;
  keys_.resize(size);
  values_.resize(size);
  for (size_t i = 0; i < size; ++i) {
    keys_[i] = static_cast<uint16_t>(random.bits());  // keys may be anything, even NaN
    values_[i] = float_to_half(100.0f * static_cast<float>(random.range(-99, 99)));
  }
}

void Cache::attach(Batch& batch) {
  batch.keys = keys_.data();
  batch.values = values_.data();
  batch.num_blocks = num_blocks_;
}

int BatchRows::add(int32_t token, int32_t position, int32_t request, int32_t slot, int32_t prefix_length,
                   const std::vector<int32_t>& tail) {
  tokens_.push_back(token);
  positions_.push_back(position);
  requests_.push_back(request);
  slots_.push_back(slot);
  prefix_lengths_.push_back(prefix_length);
  tail_slots_.insert(tail_slots_.end(), tail.begin(), tail.end());
  tail_offsets_.push_back(static_cast<int32_t>(tail_slots_.size()));
  selected_.push_back(static_cast<int32_t>(selected_.size()));
  return static_cast<int>(tokens_.size()) - 1;
}

void BatchRows::set_tables(const std::vector<std::vector<int32_t>>& tables) {
  for (const auto& table : tables) {
    block_tables_.insert(block_tables_.end(), table.begin(), table.end());
    table_offsets_.push_back(static_cast<int32_t>(block_tables_.size()));
  }
}

Batch BatchRows::batch(Cache& cache) {
  Batch b;
  b.num_rows = b.num_selected = tokens_.size();
  b.tokens = tokens_.data();
  b.positions = positions_.data();
  b.requests = requests_.data();
  b.slots = slots_.data();
  b.prefix_lengths = prefix_lengths_.data();
  b.tail_offsets = tail_offsets_.data();
  b.tail_slots = tail_slots_.data();
  b.table_offsets = table_offsets_.data();
  b.block_tables = block_tables_.data();
  b.selected_rows = selected_.data();
  cache.attach(b);
  return b;
}

namespace {

// Blocks handed out in random order.
class Blocks {
 public:
  Blocks(size_t num_blocks, Random& random) : free_(num_blocks) {
    std::iota(free_.begin(), free_.end(), 0);
    for (size_t i = free_.size(); i > 1; --i) {
      std::swap(free_[i - 1], free_[static_cast<size_t>(random.range(0, static_cast<int>(i) - 1))]);
    }
  }
  std::vector<int32_t> take(size_t count) {
    std::vector<int32_t> taken(free_.end() - static_cast<std::ptrdiff_t>(count), free_.end());
    free_.resize(free_.size() - count);
    return taken;
  }

 private:
  std::vector<int32_t> free_;
};

size_t blocks_for(size_t positions) { return (positions + kBlockPositions - 1) / kBlockPositions; }

int32_t slot_at(const std::vector<int32_t>& table, size_t position) {
  return table[position / kBlockPositions] * kBlockPositions + static_cast<int32_t>(position % kBlockPositions);
}

std::vector<float> result_row(const Model& model, int row) {
  const auto data = model.program->result(model.result);
  const size_t width = model.program->width(model.result);
  const float* const begin = data.get() + static_cast<size_t>(row) * width;
  return {begin, begin + width};
}

void prefill(const Model& model, const std::vector<Request>& requests, const std::vector<std::vector<int32_t>>& tables,
             Cache& cache, int chunk, Random& random) {
  std::vector<size_t> done(requests.size(), 0);
  for (bool more = true; more;) {
    more = false;
    BatchRows rows;
    rows.set_tables(tables);
    for (size_t r = 0; r < requests.size(); ++r) {
      const size_t left = requests[r].prefix.size() - done[r];
      if (left > 0 && (random.chance(0.7) || rows.num_rows() == 0)) {
        const size_t count = std::min(left, static_cast<size_t>(random.range(1, chunk)));
        for (size_t i = 0; i < count; ++i, ++done[r]) {
          const int32_t position = static_cast<int32_t>(done[r]);
          rows.add(requests[r].prefix[done[r]], position, static_cast<int32_t>(r), slot_at(tables[r], done[r]),
                   position + 1, {});
        }
      }
      more = more || done[r] < requests[r].prefix.size();
    }
    if (rows.num_rows() > 0) model.program->run(rows.batch(cache));
  }
}

}  // namespace

NodeRows run_together(const Model& model, const std::vector<Request>& requests, int chunk, Random& random) {
  size_t needed = 2;
  for (const Request& r : requests) needed += blocks_for(r.prefix.size()) + blocks_for(r.nodes.size());
  Cache cache(model.cache, needed, random);
  Blocks blocks(needed, random);
  std::vector<std::vector<int32_t>> tables;
  for (const Request& r : requests) tables.push_back(blocks.take(blocks_for(r.prefix.size())));
  prefill(model, requests, tables, cache, chunk, random);

  BatchRows rows;
  rows.set_tables(tables);
  std::vector<std::vector<int>> index(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request& request = requests[r];
    const auto scratch = blocks.take(blocks_for(request.nodes.size()));
    const int32_t prefix = static_cast<int32_t>(request.prefix.size());
    for (size_t n = 0; n < request.nodes.size(); ++n) {
      std::vector<int32_t> tail;
      for (int node : request.path(static_cast<int>(n))) tail.push_back(slot_at(scratch, static_cast<size_t>(node)));
      const int32_t position = prefix + static_cast<int32_t>(tail.size()) - 1;
      index[r].push_back(rows.add(request.nodes[n], position, static_cast<int32_t>(r), tail.back(), prefix, tail));
    }
  }
  model.program->run(rows.batch(cache));
  NodeRows results(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    for (int row : index[r]) results[r].push_back(result_row(model, row));
  }
  return results;
}

NodeRows run_one_by_one(const Model& model, const std::vector<Request>& requests, Random& random) {
  NodeRows results;
  for (const Request& request : requests) {
    const size_t needed = blocks_for(request.prefix.size() + request.nodes.size()) + 1;
    Cache cache(model.cache, needed, random);
    const auto table = Blocks(needed, random).take(needed - 1);
    const auto feed = [&](int32_t token, size_t position) {
      BatchRows rows;
      rows.set_tables({table});
      const int32_t p = static_cast<int32_t>(position);
      rows.add(token, p, 0, slot_at(table, position), p + 1, {});
      model.program->run(rows.batch(cache));
    };
    for (size_t i = 0; i < request.prefix.size(); ++i) feed(request.prefix[i], i);
    results.emplace_back();
    for (size_t n = 0; n < request.nodes.size(); ++n) {
      size_t position = request.prefix.size();
      for (int node : request.path(static_cast<int>(n))) feed(request.nodes[static_cast<size_t>(node)], position++);
      results.back().push_back(result_row(model, 0));
    }
  }
  return results;
}

void check_same_rows(const NodeRows& a, const NodeRows& b, const std::string& detail) {
  CHECK(a.size() == b.size());
  for (size_t r = 0; r < a.size(); ++r) {
    CHECK(a[r].size() == b[r].size());
    for (size_t n = 0; n < a[r].size(); ++n) {
      bool finite = true;
      for (float v : a[r][n]) finite = finite && std::isfinite(v);
      CHECK_SAYING(finite, detail);
      CHECK_SAYING(same_bits(a[r][n].data(), b[r][n].data(), a[r][n].size()), detail);
    }
  }
}

}  // namespace testing
}  // namespace foredraft
