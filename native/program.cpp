#include "program.h"

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "operations.h"

namespace foredraft {

ThreadPool& Context::pool() const { return *program_.pool_; }
const Kernels& Context::kernels() const { return program_.kernels_; }
float* Context::buffer(int id) const { return program_.memory(id); }
size_t Context::width(int id) const { return program_.width(id); }
size_t Context::num_rows(int id) const {
  return program_.buffers_[static_cast<size_t>(id)].selected ? batch.num_selected : batch.num_rows;
}
const RopeTable& Context::rope_table(int index) const { return program_.rope_tables_[static_cast<size_t>(index)]; }

Program::Program(std::shared_ptr<ThreadPool> pool, const Kernels& kernels)
    : pool_(std::move(pool)), kernels_(kernels) {}
Program::~Program() = default;

// --- recording ------------------------------------------------------------------------------------------------------

void Program::check_open() const {
  if (finished_) throw std::invalid_argument("the program is finished; nothing can be added");
}

int Program::new_buffer(size_t width, bool selected) {
  check_open();
  Buffer buffer;
  buffer.width = width;
  buffer.selected = selected;
  buffers_.push_back(buffer);
  return static_cast<int>(buffers_.size()) - 1;
}

void Program::record(std::unique_ptr<Operation> operation) {
  check_open();
  operations_.push_back(std::move(operation));
}

void Program::check(int buffer, const char* what) const {
  if (buffer < 0 || static_cast<size_t>(buffer) >= buffers_.size()) {
    throw std::invalid_argument(std::string(what) + ": no such buffer");
  }
}

void Program::check_same_rows(int a, int b, const char* what) const {
  if (buffers_[static_cast<size_t>(a)].selected != buffers_[static_cast<size_t>(b)].selected) {
    throw std::invalid_argument(std::string(what) + ": one buffer has all rows, the other only the selected ones");
  }
}

void Program::check_all_rows(int buffer, const char* what) const {
  if (buffers_[static_cast<size_t>(buffer)].selected) {
    throw std::invalid_argument(std::string(what) + ": the buffer has only the selected rows");
  }
}

int Program::embed(Format format, std::shared_ptr<const uint8_t> data, size_t vocabulary, size_t width, float scale) {
  const size_t block = static_cast<size_t>(info(format).values_per_block);
  if (width == 0 || width % block != 0) throw std::invalid_argument("embed: the width must fill whole blocks");
  if (vocabulary_ != 0 && vocabulary_ != vocabulary) throw std::invalid_argument("embed: two sizes of vocabulary");
  vocabulary_ = vocabulary;
  const int out = new_buffer(width, false);
  record(make_embed(format, std::move(data), width, scale, out));
  return out;
}

int Program::rms_norm(int input, std::vector<float> weight, float epsilon, int residual) {
  check(input, "rms_norm");
  if (weight.empty() || width(input) % weight.size() != 0) {
    throw std::invalid_argument("rms_norm: the width must be a multiple of the weight's");
  }
  if (residual >= 0) {
    check(residual, "rms_norm residual");
    if (width(residual) != width(input)) throw std::invalid_argument("rms_norm: the residual has another width");
    check_same_rows(input, residual, "rms_norm residual");
  }
  const int out = new_buffer(width(input), buffers_[static_cast<size_t>(input)].selected);
  record(make_rms_norm(input, std::move(weight), epsilon, residual, out));
  return out;
}

std::vector<int> Program::linear(int input, std::vector<Linear> matrices, bool precise) {
  check(input, "linear");
  if (matrices.empty()) throw std::invalid_argument("linear: no matrix");
  for (const Linear& m : matrices) {
    if (!m.weight) throw std::invalid_argument("linear: a weight is missing");
    if (m.weight->inputs() != width(input)) throw std::invalid_argument("linear: the weight has another width");
    if (!m.bias.empty() && m.bias.size() != m.weight->outputs()) {
      throw std::invalid_argument("linear: the bias has another width");
    }
    if (m.residual >= 0) {
      check(m.residual, "linear residual");
      if (width(m.residual) != m.weight->outputs()) throw std::invalid_argument("linear: the residual has another width");
      check_same_rows(input, m.residual, "linear residual");
    }
  }
  std::vector<int> outs;
  for (const Linear& m : matrices) {
    outs.push_back(new_buffer(m.weight->outputs(), buffers_[static_cast<size_t>(input)].selected));
  }
  record(make_linear(input, std::move(matrices), precise, outs));
  return outs;
}

int Program::add_rope_table(std::vector<float> inverse_frequencies, float magnitude) {
  check_open();
  rope_tables_.push_back({std::move(inverse_frequencies), magnitude, {}, {}});
  return static_cast<int>(rope_tables_.size()) - 1;
}

void Program::rope(int buffer, int num_heads, int table, RopeStyle style) {
  check(buffer, "rope");
  check_all_rows(buffer, "rope");
  if (table < 0 || static_cast<size_t>(table) >= rope_tables_.size()) throw std::invalid_argument("rope: no such table");
  const size_t rotated = 2 * rope_tables_[static_cast<size_t>(table)].inverse_frequencies.size();
  if (num_heads <= 0 || width(buffer) % static_cast<size_t>(num_heads) != 0 ||
      rotated > width(buffer) / static_cast<size_t>(num_heads)) {
    throw std::invalid_argument("rope: the heads do not fit the buffer");
  }
  record(make_rope(buffer, num_heads, table, style));
}

int Program::attention(int queries, int keys, int values, const AttentionShape& shape) {
  check(queries, "attention queries");
  check(keys, "attention keys");
  check(values, "attention values");
  for (int b : {queries, keys, values}) check_all_rows(b, "attention");
  if (shape.head_width <= 0) throw std::invalid_argument("attention: the head width must be positive");
  if (shape.num_kv_heads <= 0 || shape.num_heads % shape.num_kv_heads != 0 || shape.layer < 0) {
    throw std::invalid_argument("attention: the query heads must be a multiple of the key/value heads");
  }
  const size_t head = static_cast<size_t>(shape.head_width);
  if (width(queries) != head * static_cast<size_t>(shape.num_heads) ||
      width(keys) != head * static_cast<size_t>(shape.num_kv_heads) || width(values) != width(keys)) {
    throw std::invalid_argument("attention: the heads do not fit the buffers");
  }
  const int out = new_buffer(width(queries), false);
  attentions_.push_back(shape);
  record(make_attention(queries, keys, values, shape, out));
  return out;
}

int Program::gated(int gate, int up, Activation activation) {
  check(gate, "gated");
  check(up, "gated");
  if (width(gate) != width(up)) throw std::invalid_argument("gated: gate and up have different widths");
  check_same_rows(gate, up, "gated");
  const int out = new_buffer(width(gate), buffers_[static_cast<size_t>(gate)].selected);
  record(make_gated(gate, up, activation, out));
  return out;
}

int Program::select(int input) {
  check(input, "select");
  check_all_rows(input, "select");
  const int out = new_buffer(width(input), true);
  record(make_select(input, out));
  return out;
}

void Program::keep(int buffer) {
  check(buffer, "keep");
  check_open();
  buffers_[static_cast<size_t>(buffer)].kept = true;
}

// Buffers that are never alive together share memory.
void Program::finish() {
  check_open();
  std::vector<size_t> last_use(buffers_.size(), 0);
  for (size_t i = 0; i < operations_.size(); ++i) {
    for (int b : operations_[i]->reads) last_use[static_cast<size_t>(b)] = i;
    for (int b : operations_[i]->writes) last_use[static_cast<size_t>(b)] = i;
  }
  std::vector<int> free;
  for (size_t i = 0; i < operations_.size(); ++i) {
    for (int b : operations_[i]->writes) {
      Buffer& buffer = buffers_[static_cast<size_t>(b)];
      if (buffer.memory >= 0) continue;
      for (size_t f = 0; f < free.size(); ++f) {
        if (memories_[static_cast<size_t>(free[f])].width != buffer.width) continue;
        buffer.memory = free[f];
        free.erase(free.begin() + static_cast<std::ptrdiff_t>(f));
        break;
      }
      if (buffer.memory < 0) {
        memories_.emplace_back();
        memories_.back().width = buffer.width;
        buffer.memory = static_cast<int>(memories_.size()) - 1;
      }
      Memory& memory = memories_[static_cast<size_t>(buffer.memory)];
      memory.selected = memory.selected && buffer.selected;
    }
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const Buffer& buffer = buffers_[b];
      if (buffer.memory >= 0 && !buffer.kept && last_use[b] == i) free.push_back(buffer.memory);
    }
  }
  seconds_.assign(operations_.size(), 0.0);
  finished_ = true;
}

// --- running --------------------------------------------------------------------------------------------------------

void Program::check_cache(size_t layers, size_t kv_heads, size_t block_size) const {
  for (const AttentionShape& shape : attentions_) {
    if (static_cast<size_t>(shape.layer) >= layers || static_cast<size_t>(shape.num_kv_heads) != kv_heads ||
        static_cast<size_t>(padded_head_width(shape.head_width)) * kBlockPositions != block_size) {
      throw std::invalid_argument("the cache has another shape than the attention of this program");
    }
  }
}

void Program::check_batch(const Batch& batch) const {
  if (!finished_) throw std::invalid_argument("the program is not finished");
  if (batch.num_rows == 0) throw std::invalid_argument("a batch needs at least one row");
  const int64_t num_slots = static_cast<int64_t>(batch.num_blocks) * kBlockPositions;
  for (size_t r = 0; r < batch.num_rows; ++r) {
    if (batch.tokens[r] < 0 || static_cast<size_t>(batch.tokens[r]) >= vocabulary_) {
      throw std::invalid_argument("token id " + std::to_string(batch.tokens[r]) + " is outside the vocabulary");
    }
    if (batch.slots[r] < 0 || batch.slots[r] >= num_slots) throw std::invalid_argument("a slot is outside the cache");
    const int64_t tail = batch.tail_offsets[r + 1] - batch.tail_offsets[r];
    if (batch.positions[r] < 0 || batch.prefix_lengths[r] < 0 ||
        batch.prefix_lengths[r] + tail != int64_t{batch.positions[r]} + 1) {
      throw std::invalid_argument("prefix and tail of a row must cover the positions up to its own");
    }
    for (int32_t t = batch.tail_offsets[r]; t < batch.tail_offsets[r + 1]; ++t) {
      if (batch.tail_slots[t] < 0 || batch.tail_slots[t] >= num_slots) {
        throw std::invalid_argument("a slot is outside the cache");
      }
    }
    const int32_t request = batch.requests[r];
    const int64_t blocks = batch.table_offsets[request + 1] - batch.table_offsets[request];
    if (batch.prefix_lengths[r] > blocks * kBlockPositions) {
      throw std::invalid_argument("a block table is shorter than its row's prefix");
    }
    for (int32_t b = batch.table_offsets[request]; b < batch.table_offsets[request + 1]; ++b) {
      if (batch.block_tables[b] < 0 || static_cast<size_t>(batch.block_tables[b]) >= batch.num_blocks) {
        throw std::invalid_argument("a block is outside the cache");
      }
    }
  }
  for (size_t i = 0; i < batch.num_selected; ++i) {
    if (batch.selected_rows[i] < 0 || static_cast<size_t>(batch.selected_rows[i]) >= batch.num_rows) {
      throw std::invalid_argument("a selected row is outside the batch");
    }
  }
}

void Program::fill_rope_tables(const Batch& batch) {
  for (RopeTable& table : rope_tables_) {
    const size_t half = table.inverse_frequencies.size();
    table.cosines.resize(batch.num_rows * half);
    table.sines.resize(batch.num_rows * half);
    for (size_t r = 0; r < batch.num_rows; ++r) {
      for (size_t i = 0; i < half; ++i) {
        // The angle is rounded to float, as in the models' own code.
        const float angle = static_cast<float>(batch.positions[r]) * table.inverse_frequencies[i];
        table.cosines[r * half + i] = static_cast<float>(std::cos(static_cast<double>(angle))) * table.magnitude;
        table.sines[r * half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * table.magnitude;
      }
    }
  }
}

namespace {

// Rounding and subnormal numbers as usual, as the threads of the pool have them: else bits would depend on what other
// libraries have set in the caller's thread, and on which thread computes a row.
class UsualFloats {
 public:
  UsualFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualFloats() { std::fesetenv(&before_); }
  UsualFloats(const UsualFloats&) = delete;
  UsualFloats& operator=(const UsualFloats&) = delete;

 private:
  std::fenv_t before_;
};

// Memory whose vectors begin where lines of the cache do: no vector lies on two, and threads that write neighbouring
// tiles share none. Throws std::bad_alloc.
std::shared_ptr<float[]> aligned_floats(size_t count) {
  constexpr std::align_val_t kLine{64};
  void* const memory = ::operator new(count * sizeof(float), kLine);
  return {static_cast<float*>(memory), [](float* floats) { ::operator delete(floats, kLine); }};
}

}  // namespace

void Program::run(const Batch& batch) {
  std::lock_guard<std::mutex> one_at_a_time(running_);
  const UsualFloats usual;
  check_batch(batch);
  for (Memory& memory : memories_) {
    const size_t rows = memory.selected ? batch.num_selected : std::max(batch.num_rows, batch.num_selected);
    if (memory.data && memory.capacity >= rows) continue;
    memory.data = aligned_floats(rows * memory.width);
    memory.capacity = rows;
  }
  fill_rope_tables(batch);
  last_rows_ = batch.num_rows;
  last_selected_ = batch.num_selected;
  const Context context(*this, batch);
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (!profiling_) {
      operations_[i]->run(context);
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    operations_[i]->run(context);
    seconds_[i] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

std::shared_ptr<const float[]> Program::result(int buffer) const {
  check(buffer, "result");
  if (!buffers_[static_cast<size_t>(buffer)].kept) throw std::invalid_argument("result: the buffer was not kept");
  const int memory = buffers_[static_cast<size_t>(buffer)].memory;
  if (last_rows_ == 0 || memory < 0) throw std::invalid_argument("result: nothing has been run");
  return memories_[static_cast<size_t>(memory)].data;
}

size_t Program::result_rows(int buffer) const {
  return buffers_[static_cast<size_t>(buffer)].selected ? last_selected_ : last_rows_;
}

void Program::set_profiling(bool on) {
  std::lock_guard<std::mutex> not_running(running_);
  profiling_ = on;
  seconds_.assign(operations_.size(), 0.0);
}

std::vector<std::pair<std::string, double>> Program::profile() const {
  std::lock_guard<std::mutex> not_running(running_);
  std::vector<std::pair<std::string, double>> kinds;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    const std::string kind = operations_[i]->kind();
    size_t k = 0;
    while (k < kinds.size() && kinds[k].first != kind) ++k;
    if (k == kinds.size()) kinds.emplace_back(kind, 0.0);
    kinds[k].second += seconds_[i];
  }
  return kinds;
}

}  // namespace foredraft
