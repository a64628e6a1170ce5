// Requests with draft trees, and ways to run them: all at once, or one token after the other.
#pragma once

#include <memory>
#include <vector>

#include "program.h"
#include "tests/check.h"

namespace foredraft {
namespace testing {

// One request: tokens whose keys and values are cached before the tree is verified, then a tree. Node 0 is the root.
struct Request {
  std::vector<int32_t> prefix;
  std::vector<int32_t> nodes;
  std::vector<int> parents;

  // Node indices from the root to `node`.
  std::vector<int> path(int node) const;
};

std::vector<Request> random_requests(Random& random, int num_requests, int longest_prefix, int most_nodes,
                                     int vocabulary);

struct CacheShape {
  size_t layers, kv_heads, head_width;
};

// Keys and values of a number of blocks, at first full of numbers that must not matter.
class Cache {
 public:
  Cache(const CacheShape& shape, size_t num_blocks, Random& random);
  void attach(Batch& batch);
  size_t num_blocks() const { return num_blocks_; }

 private:
  size_t num_blocks_;
  std::vector<uint16_t> keys_, values_;
};

// The arrays of a batch, grown row by row.
class BatchRows {
 public:
  // Returns the row's index. `tail`: slots of the row's branch, itself last.
  int add(int32_t token, int32_t position, int32_t request, int32_t slot, int32_t prefix_length,
          const std::vector<int32_t>& tail);
  void set_tables(const std::vector<std::vector<int32_t>>& tables);
  size_t num_rows() const { return tokens_.size(); }
  // All rows are selected. Valid until the rows change.
  Batch batch(Cache& cache);

 private:
  std::vector<int32_t> tokens_, positions_, requests_, slots_, prefix_lengths_, tail_offsets_{0}, tail_slots_;
  std::vector<int32_t> table_offsets_{0}, block_tables_, selected_;
};

// A program with a buffer whose rows are compared.
struct Model {
  std::shared_ptr<Program> program;
  CacheShape cache;
  int vocabulary;
  int result;
};

// Result rows of every node of every request, [requests][nodes][width].
using NodeRows = std::vector<std::vector<std::vector<float>>>;

// Prompts in chunks of at most `chunk` rows, several requests in a batch; then all trees in one batch.
NodeRows run_together(const Model& model, const std::vector<Request>& requests, int chunk, Random& random);
// Every node's branch as a sequence of its own, one token after the other, in a cache of its own.
NodeRows run_one_by_one(const Model& model, const std::vector<Request>& requests, Random& random);

void check_same_rows(const NodeRows& a, const NodeRows& b, const std::string& detail);

}  // namespace testing
}  // namespace foredraft
