// Attention of a whole batch: stores the new keys and values, then cuts the work into tiles of queries that share a
// key/value head and their cached blocks.
#include <algorithm>
#include <cstring>

#include "operations.h"

namespace foredraft {
namespace {

// Consecutive rows of one request, computed together.
struct RowTile {
  size_t first, count;
  int first_block, end_block;  // logical blocks that some row sees
  int shared_end;              // blocks below are read from the cache for all rows
};

struct Scratch {
  std::vector<float> queries, scores, out;
  std::vector<int> positions;
  std::vector<const uint16_t*> keys, values;
  std::vector<uint16_t> own_keys, own_values;  // blocks put together from a row's branch of the draft tree
};

class Attention final : public Operation {
 public:
  Attention(int queries, int keys, int values, const AttentionShape& shape, int out)
      : queries_(queries), keys_(keys), values_(values), out_(out), shape_(shape),
        group_(shape.num_heads / shape.num_kv_heads), padded_(padded_head_width(shape.head_width)),
        block_size_(static_cast<size_t>(padded_) * kBlockPositions) {
    reads = {queries, keys, values};
    writes = {out};
  }
  const char* kind() const override { return "attention"; }

  void run(const Context& c) override {
    store(c);
    make_tiles(c.batch);
    ThreadPool& pool = c.pool();
    scratch_.resize(static_cast<size_t>(pool.num_threads()));
    const size_t kv_heads = static_cast<size_t>(shape_.num_kv_heads);
    // With fewer tiles than threads, the heads that share a key/value head are dealt out as well.
    const size_t tasks = tiles_.size() * kv_heads;
    const size_t parts =
        tasks < static_cast<size_t>(pool.num_threads()) && group_ > 1 ? static_cast<size_t>(group_) : 1;
    pool.parallel_for(tasks * parts, [&](size_t task, int thread) {
      const size_t part = task % parts, kv_head = task / parts % kv_heads;
      const int heads = group_ / static_cast<int>(parts);
      attend(c, tiles_[task / parts / kv_heads], static_cast<int>(kv_head), static_cast<int>(part) * heads, heads,
             scratch_[static_cast<size_t>(thread)]);
    });
  }

 private:
  static constexpr int kTileQueries = 32;

  uint16_t* block(uint16_t* pool, const Batch& batch, size_t index, int kv_head) const {
    const size_t heads = static_cast<size_t>(shape_.num_kv_heads);
    return pool + ((static_cast<size_t>(shape_.layer) * batch.num_blocks + index) * heads +
                   static_cast<size_t>(kv_head)) * block_size_;
  }

  void store(const Context& c) const {
    const size_t head = static_cast<size_t>(shape_.head_width), width = c.width(keys_);
    auto store_row = [&](size_t r, int) {
      std::vector<float> padded_head(static_cast<size_t>(padded_), 0.0f);
      const auto padded = [&](const float* x) {
        if (padded_ == shape_.head_width) return x;
        std::memcpy(padded_head.data(), x, head * sizeof(float));
        return static_cast<const float*>(padded_head.data());
      };
      const size_t index = static_cast<size_t>(c.batch.slots[r]) / kBlockPositions;
      const int lane = c.batch.slots[r] % kBlockPositions;
      for (int h = 0; h < shape_.num_kv_heads; ++h) {
        const size_t offset = r * width + static_cast<size_t>(h) * head;
        c.kernels().store_key(padded(c.buffer(keys_) + offset), padded_, block(c.batch.keys, c.batch, index, h), lane);
        c.kernels().store_value(padded(c.buffer(values_) + offset), padded_, block(c.batch.values, c.batch, index, h),
                                lane);
      }
    };
    if (c.batch.num_rows < 32) {
      for (size_t r = 0; r < c.batch.num_rows; ++r) store_row(r, 0);
    } else {
      c.pool().parallel_for(c.batch.num_rows, store_row);
    }
  }

  void make_tiles(const Batch& batch) {
    tiles_.clear();
    const size_t most = static_cast<size_t>(group_ < kTileQueries ? kTileQueries / group_ : 1);
    for (size_t first = 0; first < batch.num_rows;) {
      RowTile tile{first, 0, 1 << 30, 0, 1 << 30};
      bool has_tails = false;
      for (size_t r = first; r < batch.num_rows && tile.count < most && batch.requests[r] == batch.requests[first];
           ++r, ++tile.count) {
        const int position = batch.positions[r], prefix = batch.prefix_lengths[r];
        const int oldest = shape_.window > 0 && position >= shape_.window ? position - shape_.window + 1 : 0;
        tile.first_block = std::min(tile.first_block, oldest / kBlockPositions);
        tile.end_block = std::max(tile.end_block, position / kBlockPositions + 1);
        tile.shared_end = std::min(tile.shared_end, prefix / kBlockPositions);
        has_tails = has_tails || batch.tail_offsets[r + 1] > batch.tail_offsets[r];
      }
      if (!has_tails) tile.shared_end = tile.end_block;
      tile.shared_end = std::max(tile.shared_end, tile.first_block);
      tiles_.push_back(tile);
      first += tile.count;
    }
  }

  // Block `logical` as row `r` sees it: from the cache, or put together from the tail.
  void own_block(const Batch& batch, size_t r, int logical, int kv_head, uint16_t* keys, uint16_t* values) const {
    const int begin = logical * kBlockPositions, prefix = batch.prefix_lengths[r];
    if (begin < prefix) {
      const int32_t* const table = batch.block_tables + batch.table_offsets[batch.requests[r]];
      const size_t index = static_cast<size_t>(table[logical]);
      std::memcpy(keys, block(batch.keys, batch, index, kv_head), block_size_ * sizeof(uint16_t));
      std::memcpy(values, block(batch.values, batch, index, kv_head), block_size_ * sizeof(uint16_t));
    } else {
      std::memset(keys, 0, block_size_ * sizeof(uint16_t));
      std::memset(values, 0, block_size_ * sizeof(uint16_t));
    }
    const int end = std::min(begin + kBlockPositions, batch.positions[r] + 1);
    for (int position = std::max(begin, prefix); position < end; ++position) {
      const int32_t slot = batch.tail_slots[batch.tail_offsets[r] + position - prefix];
      copy_lane(batch, slot, kv_head, keys, values, position - begin);
    }
  }

  void copy_lane(const Batch& batch, int32_t slot, int kv_head, uint16_t* keys, uint16_t* values, int lane) const {
    const size_t index = static_cast<size_t>(slot) / kBlockPositions;
    const int from = slot % kBlockPositions;
    const uint16_t* const key = block(batch.keys, batch, index, kv_head);
    const uint16_t* const value = block(batch.values, batch, index, kv_head);
    for (int e = 0; e < padded_; ++e) keys[e * kBlockPositions + lane] = key[e * kBlockPositions + from];
    std::memcpy(values + lane * padded_, value + from * padded_, static_cast<size_t>(padded_) * sizeof(uint16_t));
  }

  void gather_blocks(const Batch& batch, const RowTile& tile, int kv_head, Scratch& s) const {
    const int32_t* const table = batch.block_tables + batch.table_offsets[batch.requests[tile.first]];
    s.keys.clear();
    s.values.clear();
    for (int b = tile.first_block; b < tile.shared_end; ++b) {
      s.keys.push_back(block(batch.keys, batch, static_cast<size_t>(table[b]), kv_head));
      s.values.push_back(block(batch.values, batch, static_cast<size_t>(table[b]), kv_head));
    }
    const size_t own = static_cast<size_t>(tile.end_block - tile.shared_end);
    s.own_keys.resize(tile.count * own * block_size_);
    s.own_values.resize(tile.count * own * block_size_);
    for (size_t i = 0; i < tile.count * own; ++i) {
      uint16_t* const keys = s.own_keys.data() + i * block_size_;
      uint16_t* const values = s.own_values.data() + i * block_size_;
      own_block(batch, tile.first + i / own, tile.shared_end + static_cast<int>(i % own), kv_head, keys, values);
      s.keys.push_back(keys);
      s.values.push_back(values);
    }
  }

  void attend(const Context& c, const RowTile& tile, int kv_head, int first_head, int heads, Scratch& s) const {
    const size_t head = static_cast<size_t>(shape_.head_width), width = c.width(queries_);
    const size_t num_queries = tile.count * static_cast<size_t>(heads);
    const size_t column = static_cast<size_t>(kv_head * group_ + first_head) * head;
    const size_t padded = static_cast<size_t>(padded_);
    s.queries.assign(num_queries * padded, 0.0f);
    s.out.resize(num_queries * padded);
    s.positions.resize(num_queries);
    const int num_blocks = tile.end_block - tile.first_block;
    s.scores.resize(num_queries * static_cast<size_t>(num_blocks) * kBlockPositions);
    gather_blocks(c.batch, tile, kv_head, s);
    for (size_t q = 0; q < num_queries; ++q) {
      const size_t row = tile.first + q / static_cast<size_t>(heads), h = q % static_cast<size_t>(heads);
      const float* const from = c.buffer(queries_) + row * width + column + h * head;
      for (size_t e = 0; e < head; ++e) s.queries[q * padded + e] = from[e] * shape_.scale;
      s.positions[q] = c.batch.positions[row];
    }
    AttentionTile t{};
    t.queries = s.queries.data();
    t.num_queries = static_cast<int>(num_queries);
    t.head_width = padded_;
    t.positions = s.positions.data();
    t.window = shape_.window;
    t.softcap = shape_.softcap;
    t.first_block = tile.first_block;
    t.num_blocks = num_blocks;
    t.shared_blocks = tile.shared_end;
    t.keys = s.keys.data();
    t.values = s.values.data();
    t.queries_per_row = heads;
    t.scores = s.scores.data();
    t.out = s.out.data();
    c.kernels().attention(t);
    for (size_t q = 0; q < num_queries; ++q) {
      const size_t row = tile.first + q / static_cast<size_t>(heads), h = q % static_cast<size_t>(heads);
      std::memcpy(c.buffer(out_) + row * width + column + h * head, s.out.data() + q * padded, head * sizeof(float));
    }
  }

  int queries_, keys_, values_, out_;
  AttentionShape shape_;
  int group_;
  int padded_;  // head width in the cache; what is added is zero
  size_t block_size_;
  std::vector<RowTile> tiles_;
  std::vector<Scratch> scratch_;
};

}  // namespace

std::unique_ptr<Operation> make_attention(int queries, int keys, int values, const AttentionShape& shape, int out) {
  return std::make_unique<Attention>(queries, keys, values, shape, out);
}

}  // namespace foredraft
