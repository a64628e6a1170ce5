// A decoder as a list of operations, recorded once and run for any number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels.h"
#include "pack.h"
#include "thread_pool.h"

namespace foredraft {

constexpr int kBlockPositions = 16;  // positions of a cache block

// Heads are kept in whole vectors.
inline int padded_head_width(int head_width) { return (head_width + 15) / 16 * 16; }

// One forward pass: `num_rows` tokens of one or several requests. Rows of a request are consecutive.
// A row sees the cached positions below `prefix_length` through its request's block table, and the following positions,
// up to its own, in the slots listed in its tail (the nodes of its branch of the draft tree, itself included).
struct Batch {
  size_t num_rows = 0;
  const int32_t* tokens = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* requests = nullptr;        // index of each row's request
  const int32_t* slots = nullptr;           // where each row's key and value are stored: block * 16 + lane
  const int32_t* prefix_lengths = nullptr;
  const int32_t* tail_offsets = nullptr;    // [num_rows + 1] into tail_slots
  const int32_t* tail_slots = nullptr;
  const int32_t* table_offsets = nullptr;   // [num requests + 1] into block_tables
  const int32_t* block_tables = nullptr;
  const int32_t* selected_rows = nullptr;   // rows whose results are wanted
  size_t num_selected = 0;
  uint16_t* keys = nullptr;                 // [layers][num_blocks][kv heads][padded head width][16]
  uint16_t* values = nullptr;               // [layers][num_blocks][kv heads][16][padded head width]
  size_t num_blocks = 0;
};

struct RopeTable {
  std::vector<float> inverse_frequencies;
  float magnitude;
  std::vector<float> cosines, sines;  // [rows][rotated / 2], filled at the start of a run
};

class Program;

// What an operation sees while it runs.
class Context {
 public:
  Context(Program& program, const Batch& its_batch) : batch(its_batch), program_(program) {}
  const Batch& batch;
  ThreadPool& pool() const;
  const Kernels& kernels() const;
  float* buffer(int id) const;
  size_t width(int id) const;
  size_t num_rows(int id) const;
  const RopeTable& rope_table(int index) const;

 private:
  Program& program_;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run(const Context& context) = 0;
  virtual const char* kind() const = 0;
  std::vector<int> reads, writes;  // buffer ids
};

// One matrix of a linear operation.
struct Linear {
  std::shared_ptr<const Weight> weight;
  std::vector<float> bias;  // empty: none
  int residual = -1;        // buffer added to the result; -1: none
};

struct AttentionShape {
  int layer, num_heads, num_kv_heads, head_width, window;
  float scale, softcap;
};

class Program {
 public:
  Program(std::shared_ptr<ThreadPool> pool, const Kernels& kernels);
  ~Program();

  // Recording. Each returns the id of the buffer that will hold its result; shapes are checked here
  // (std::invalid_argument), so that a run need not check them.
  int embed(Format format, std::shared_ptr<const uint8_t> data, size_t vocabulary, size_t width, float scale);
  int rms_norm(int input, std::vector<float> weight, float epsilon, int residual);
  std::vector<int> linear(int input, std::vector<Linear> matrices, bool precise);
  int add_rope_table(std::vector<float> inverse_frequencies, float magnitude);
  void rope(int buffer, int num_heads, int table, RopeStyle style);
  int attention(int queries, int keys, int values, const AttentionShape& shape);
  int gated(int gate, int up, Activation activation);
  int select(int input);
  void keep(int buffer);  // the buffer's contents stay readable after a run
  void finish();          // assigns memory, once; nothing can be recorded afterwards

  // Throws std::invalid_argument where a cache of this shape does not fit the recorded attention.
  void check_cache(size_t layers, size_t kv_heads, size_t block_size) const;
  // Runs all operations. Safe to call from several threads: runs follow one another.
  void run(const Batch& batch);
  // The contents of a kept buffer after a run; the next run overwrites them.
  // Throws std::invalid_argument for a buffer that was not kept, and before the first run.
  std::shared_ptr<const float[]> result(int buffer) const;
  size_t result_rows(int buffer) const;
  size_t width(int buffer) const { return buffers_[static_cast<size_t>(buffer)].width; }

  // Seconds spent in each kind of operation since profiling was switched on.
  void set_profiling(bool on);
  std::vector<std::pair<std::string, double>> profile() const;

 private:
  friend class Context;
  struct Buffer {
    size_t width = 0;
    bool selected = false;  // has a row per selected row of the batch, not per row
    bool kept = false;
    int memory = -1;
  };
  struct Memory {
    size_t width = 0;
    bool selected = true;  // all its buffers are
    size_t capacity = 0;   // rows
    std::shared_ptr<float[]> data;
  };

  int new_buffer(size_t width, bool selected);
  void record(std::unique_ptr<Operation> operation);
  void check(int buffer, const char* what) const;
  void check_same_rows(int a, int b, const char* what) const;
  void check_all_rows(int buffer, const char* what) const;
  void check_open() const;
  void check_batch(const Batch& batch) const;
  float* memory(int buffer) const {
    return memories_[static_cast<size_t>(buffers_[static_cast<size_t>(buffer)].memory)].data.get();
  }
  void fill_rope_tables(const Batch& batch);

  std::shared_ptr<ThreadPool> pool_;
  const Kernels& kernels_;
  std::vector<Buffer> buffers_;
  std::vector<Memory> memories_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<RopeTable> rope_tables_;
  std::vector<AttentionShape> attentions_;
  size_t vocabulary_ = 0;
  size_t last_rows_ = 0, last_selected_ = 0;
  bool finished_ = false, profiling_ = false;
  std::vector<double> seconds_;
  mutable std::mutex running_;
};

}  // namespace foredraft
