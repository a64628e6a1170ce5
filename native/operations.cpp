#include "operations.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "activations.h"
#include "blocks.h"

namespace foredraft {
namespace {

// Below this many numbers the threads would cost more than they save.
constexpr size_t kSerialWork = 16384;

// Calls body(row) for each row, on several threads where there is enough to do.
template <class Body>
void for_rows(ThreadPool& pool, size_t num_rows, size_t width, Body body) {
  if (num_rows * width < kSerialWork) {
    for (size_t row = 0; row < num_rows; ++row) body(row);
  } else {
    pool.parallel_for(num_rows, [&](size_t row, int) { body(row); });
  }
}

class Embed final : public Operation {
 public:
  Embed(Format format, std::shared_ptr<const uint8_t> data, size_t width, float scale, int out)
      : format_(format), data_(std::move(data)), width_(width), scale_(scale), out_(out) {
    writes = {out};
  }
  const char* kind() const override { return "embed"; }
  void run(const Context& c) override {
    for_rows(c.pool(), c.batch.num_rows, width_, [&](size_t row) {
      const size_t token = static_cast<size_t>(c.batch.tokens[row]);
      float* const out = c.buffer(out_) + row * width_;
      dequantize_row(format_, data_.get() + token * row_bytes(format_, width_), width_, out);
      if (scale_ != 1.0f) {
        for (size_t i = 0; i < width_; ++i) out[i] *= scale_;
      }
    });
  }

 private:
  Format format_;
  std::shared_ptr<const uint8_t> data_;
  size_t width_;
  float scale_;
  int out_;
};

class RmsNorm final : public Operation {
 public:
  RmsNorm(int input, std::vector<float> weight, float epsilon, int residual, int out)
      : input_(input), residual_(residual), out_(out), weight_(std::move(weight)), epsilon_(epsilon) {
    reads = {input};
    if (residual >= 0) reads.push_back(residual);
    writes = {out};
  }
  const char* kind() const override { return "norm"; }
  void run(const Context& c) override {
    const size_t width = weight_.size();
    const size_t vectors = c.num_rows(input_) * (c.width(input_) / width);
    for_rows(c.pool(), vectors, width, [&](size_t i) {
      const float* const residual = residual_ >= 0 ? c.buffer(residual_) + i * width : nullptr;
      c.kernels().rms_norm(c.buffer(input_) + i * width, weight_.data(), residual, c.buffer(out_) + i * width, width,
                           epsilon_);
    });
  }

 private:
  int input_, residual_, out_;
  std::vector<float> weight_;
  float epsilon_;
};

// Integer weights take activations as bytes. A precise operation takes them as two bytes, the second for what the
// first leaves over, as if each row were two whose products are added.
class LinearOperation final : public Operation {
 public:
  LinearOperation(int input, std::vector<Linear> matrices, bool precise, std::vector<int> outs)
      : input_(input), matrices_(std::move(matrices)), outs_(std::move(outs)), activations_(precise) {
    reads = {input};
    writes = outs_;
    for (const Linear& m : matrices_) {
      if (m.residual >= 0) reads.push_back(m.residual);
      num_tiles_ += m.weight->num_tiles();
      quantized_ = quantized_ || !is_dense(m.weight->format());
    }
  }
  const char* kind() const override { return "linear"; }

  void run(const Context& c) override {
    const size_t num_rows = c.num_rows(input_);
    prepare(c, num_rows);
    const size_t threads = static_cast<size_t>(c.pool().num_threads());
    // Small tasks even out the threads; large ones keep reads sequential.
    size_t per_task = num_tiles_ / (threads * (num_rows > 8 ? 4 : 8));
    per_task = per_task < 1 ? 1 : per_task > kMaxTilesPerCall ? kMaxTilesPerCall : per_task;
    c.pool().parallel_for((num_tiles_ + per_task - 1) / per_task, [&](size_t task, int) {
      const size_t end = (task + 1) * per_task < num_tiles_ ? (task + 1) * per_task : num_tiles_;
      multiply(c, num_rows, task * per_task, end);
    });
  }

 private:
  // Groups of all rows together below which threads would cost more than they save.
  static constexpr size_t kSerialGroups = 512;
  // Rows of one call of a matmul that takes floats only.
  static constexpr size_t kDenseRows = kMaxRowsPerCall / 2;

  void prepare(const Context& c, size_t num_rows) {
    if (!quantized_) return;
    const size_t inputs = c.width(input_);
    activations_.resize(c.kernels(), num_rows, inputs);
    const size_t groups = inputs / kGroup, threads = static_cast<size_t>(c.pool().num_threads());
    // Rows lie side by side, group by group: threads that took rows each would write to the same lines of the caches.
    const size_t parts = num_rows * inputs * activations_.parts() < kSerialGroups * kGroup ? 1 : threads;
    const size_t share = (groups + parts - 1) / parts;
    c.pool().parallel_for((groups + share - 1) / share, [&](size_t part, int) {
      const size_t end = (part + 1) * share < groups ? (part + 1) * share : groups;
      activations_.fill(c.kernels(), c.buffer(input_), part * share, end);
    });
  }

  // Tiles from `begin` to `end`, counted over all matrices.
  void multiply(const Context& c, size_t num_rows, size_t begin, size_t end) const {
    size_t before = 0;  // tiles of the matrices passed
    for (size_t m = 0; m < matrices_.size() && before < end; ++m) {
      const size_t tiles = matrices_[m].weight->num_tiles();
      const size_t from = begin > before ? begin - before : 0, to = end - before < tiles ? end - before : tiles;
      const bool dense = is_dense(matrices_[m].weight->format());
      const size_t per_call = dense ? kDenseRows : activations_.rows_per_call();
      for (size_t first = 0; from < to && first < num_rows; first += per_call) {
        const size_t count = num_rows - first < per_call ? num_rows - first : per_call;
        multiply_tiles(c, first, count, m, from, to);
      }
      before += tiles;
    }
  }

  Rows rows_from(const Context& c, size_t first, size_t count, bool dense) const {
    if (!dense) return activations_.from(first);
    Rows rows{};
    rows.inputs = c.width(input_);
    rows.values = c.buffer(input_) + first * rows.inputs;
    rows.rows_per_pass = rows_per_pass(c.kernels(), count);
    return rows;
  }

  void multiply_tiles(const Context& c, size_t first, size_t count, size_t m, size_t from, size_t to) const {
    const Linear& matrix = matrices_[m];
    const Weight& weight = *matrix.weight;
    const size_t outputs = weight.outputs(), channel = from * kTile;
    const Tiles tiles{weight.tile(from), weight.tile_stride(), to - from};
    Output output{};
    output.stride = outputs;
    output.out = c.buffer(outs_[m]) + first * outputs + channel;
    if (matrix.residual >= 0) output.residual = c.buffer(matrix.residual) + first * outputs + channel;
    if (!matrix.bias.empty()) output.bias = matrix.bias.data() + channel;
    output.channels = outputs - channel < tiles.count * kTile ? outputs - channel : tiles.count * kTile;
    const bool dense = is_dense(weight.format());
    const Rows rows = rows_from(c, first, count, dense);
    const auto multiply_rows = c.kernels().matmul[static_cast<int>(weight.format())];
    if (dense || activations_.parts() == 1) {
      multiply_rows(tiles, rows, count, output);
      return;
    }
    const size_t stride = tiles.count * kTile;
    // Not on the stack, where the matmul has as much again: threads have but 128 KiB with some C libraries (musl).
    const std::unique_ptr<float[]> products(new float[2 * count * stride]);
    multiply_rows(tiles, rows, 2 * count, Output{products.get(), nullptr, nullptr, stride, output.channels});
    for (size_t r = 0; r < count; ++r) {
      const float* const coarse = products.get() + 2 * r * stride;
      for (size_t ch = 0; ch < output.channels; ++ch) {
        float v = coarse[ch] + coarse[stride + ch];
        if (output.bias) v += output.bias[ch];
        if (output.residual) v += output.residual[r * outputs + ch];
        output.out[r * outputs + ch] = v;
      }
    }
  }

  int input_;
  std::vector<Linear> matrices_;
  std::vector<int> outs_;
  size_t num_tiles_ = 0;
  bool quantized_ = false;
  Activations activations_;
};

class Rope final : public Operation {
 public:
  Rope(int buffer, int num_heads, int table, RopeStyle style)
      : buffer_(buffer), num_heads_(num_heads), table_(table), style_(style) {
    reads = {buffer};
    writes = {buffer};
  }
  const char* kind() const override { return "rope"; }
  void run(const Context& c) override {
    const RopeTable& table = c.rope_table(table_);
    const size_t half = table.inverse_frequencies.size(), width = c.width(buffer_);
    for_rows(c.pool(), c.num_rows(buffer_), width, [&](size_t r) {
      c.kernels().rope(c.buffer(buffer_) + r * width, num_heads_, static_cast<int>(width) / num_heads_,
                       static_cast<int>(2 * half), table.cosines.data() + r * half, table.sines.data() + r * half,
                       style_);
    });
  }

 private:
  int buffer_, num_heads_, table_;
  RopeStyle style_;
};

class Gated final : public Operation {
 public:
  Gated(int gate, int up, Activation activation, int out) : gate_(gate), up_(up), out_(out), activation_(activation) {
    reads = {gate, up};
    writes = {out};
  }
  const char* kind() const override { return "gate"; }
  void run(const Context& c) override {
    const size_t width = c.width(gate_);
    const size_t rows = c.num_rows(gate_), threads = static_cast<size_t>(c.pool().num_threads());
    // Columns, as the matmuls before and after are shared out: what a thread reads here is mostly of its own writing.
    const size_t parts = rows * width < kSerialWork ? 1 : 2 * threads;
    const size_t share = ((width + parts - 1) / parts + kTile - 1) / kTile * kTile;
    c.pool().parallel_for((width + share - 1) / share, [&](size_t part, int) {
      const size_t begin = part * share, count = std::min(share, width - begin);
      for (size_t at = begin; at < rows * width; at += width) {
        c.kernels().gated(c.buffer(gate_) + at, c.buffer(up_) + at, c.buffer(out_) + at, count, activation_);
      }
    });
  }

 private:
  int gate_, up_, out_;
  Activation activation_;
};

class Select final : public Operation {
 public:
  Select(int input, int out) : input_(input), out_(out) {
    reads = {input};
    writes = {out};
  }
  const char* kind() const override { return "select"; }
  void run(const Context& c) override {
    const size_t width = c.width(input_);
    for (size_t i = 0; i < c.batch.num_selected; ++i) {
      const size_t row = static_cast<size_t>(c.batch.selected_rows[i]);
      std::memcpy(c.buffer(out_) + i * width, c.buffer(input_) + row * width, width * sizeof(float));
    }
  }

 private:
  int input_, out_;
};

}  // namespace

std::unique_ptr<Operation> make_embed(Format format, std::shared_ptr<const uint8_t> data, size_t width, float scale,
                                      int out) {
  return std::make_unique<Embed>(format, std::move(data), width, scale, out);
}
std::unique_ptr<Operation> make_rms_norm(int input, std::vector<float> weight, float epsilon, int residual, int out) {
  return std::make_unique<RmsNorm>(input, std::move(weight), epsilon, residual, out);
}
std::unique_ptr<Operation> make_linear(int input, std::vector<Linear> matrices, bool precise,
                                       std::vector<int> outs) {
  return std::make_unique<LinearOperation>(input, std::move(matrices), precise, std::move(outs));
}
std::unique_ptr<Operation> make_rope(int buffer, int num_heads, int table, RopeStyle style) {
  return std::make_unique<Rope>(buffer, num_heads, table, style);
}
std::unique_ptr<Operation> make_gated(int gate, int up, Activation activation, int out) {
  return std::make_unique<Gated>(gate, up, activation, out);
}
std::unique_ptr<Operation> make_select(int input, int out) { return std::make_unique<Select>(input, out); }

}  // namespace foredraft
