// Matmul of every format against double precision, and the promise that a row's bits do not depend on its neighbours.
#include <algorithm>

#include "activations.h"
#include "blocks.h"
#include "pack.h"
#include "tests/check.h"

namespace foredraft {
namespace testing {
namespace {

constexpr float kUntouched = 12345.0f;

// Rows in both the forms that a matmul may read.
struct Inputs {
  std::vector<float> values;
  size_t inputs;

  Inputs(std::vector<float> x, size_t its_inputs) : values(std::move(x)), inputs(its_inputs) {}

  size_t num_rows() const { return values.size() / inputs; }

  Inputs slice(size_t first, size_t count) const {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * inputs);
    return Inputs({begin, begin + static_cast<std::ptrdiff_t>(count * inputs)}, inputs);
  }

  // What the bytes of each row stand for: [rows][inputs].
  std::vector<double> meaning(const Kernels& k, bool dense) const {
    std::vector<double> result(values.begin(), values.end());
    if (dense) return result;
    for (size_t r = 0; r < num_rows(); ++r) {
      Activations alone(false);
      alone.resize(k, 1, inputs);
      alone.fill(k, values.data() + r * inputs, 0, inputs / kGroup);
      const Rows rows = alone.from(0);
      for (size_t i = 0; i < inputs; ++i) {
        result[r * inputs + i] = static_cast<double>(rows.bytes[i]) * rows.scales[i / kGroup];
      }
    }
    return result;
  }
};

struct Case {
  Format format;
  size_t outputs, inputs;
};

std::vector<float> multiply(const Kernels& k, const Weight& weight, const Inputs& x, const float* bias = nullptr,
                            const float* residual = nullptr, size_t tiles_per_call = kMaxTilesPerCall) {
  const size_t outputs = weight.outputs(), stride = outputs + 3, count = x.num_rows();
  std::vector<float> out((count + 1) * stride, kUntouched);
  Activations activations(false);
  Rows rows{};
  if (!is_dense(weight.format())) {
    activations.resize(k, count, x.inputs);
    // Part after part, as several threads do.
    for (size_t g = 0; g < x.inputs / kGroup; g += 3) {
      activations.fill(k, x.values.data(), g, std::min(g + 3, x.inputs / kGroup));
    }
    rows = activations.from(0);
  }
  rows.values = x.values.data();
  rows.inputs = x.inputs;
  rows.rows_per_pass = rows_per_pass(k, count);
  for (size_t t = 0; t < weight.num_tiles(); t += tiles_per_call) {
    const size_t tiles = std::min(tiles_per_call, weight.num_tiles() - t);
    Output o{};
    o.out = out.data() + t * kTile;
    o.stride = stride;
    o.channels = std::min(tiles * kTile, outputs - t * kTile);
    if (bias) o.bias = bias + t * kTile;
    if (residual) o.residual = residual + t * kTile;
    const Tiles called{weight.tile(t), weight.tile_stride(), tiles};
    k.matmul[static_cast<int>(weight.format())](called, rows, count, o);
  }
  return out;
}

void check_against_double(const Kernels& k, const Case& c, const std::vector<uint8_t>& data, const Inputs& x,
                          const std::vector<float>& out) {
  const bool dense = is_dense(c.format);
  const std::vector<double> meaning = x.meaning(k, dense);
  std::vector<float> w(c.inputs);
  for (size_t n = 0; n < c.outputs; ++n) {
    dequantize_row(c.format, data.data() + n * row_bytes(c.format, c.inputs), c.inputs, w.data());
    double largest = 0.0;
    for (float v : w) largest = std::max(largest, std::abs(static_cast<double>(v)));
    for (size_t r = 0; r < x.num_rows(); ++r) {
      double exact = 0.0, magnitude = 0.0;
      for (size_t i = 0; i < c.inputs; ++i) {
        exact += w[i] * meaning[r * c.inputs + i];
        magnitude += 4.0 * largest * std::abs(meaning[r * c.inputs + i]);
      }
      const double steps = static_cast<double>(dense ? c.inputs : c.inputs / 16) + 4.0;
      const double error = std::abs(out[r * (c.outputs + 3) + n] - exact);
      CHECK_SAYING(error <= magnitude * steps * 0x1p-25, info(c.format).name);
    }
  }
}

void test_case(const Kernels& k, const Case& c, const std::vector<uint8_t>& data, std::vector<float> values) {
  ThreadPool pool(1);
  const Weight weight(c.format, c.outputs, c.inputs, data.data(), pool);
  const size_t rows = values.size() / c.inputs, stride = c.outputs + 3;
  const Inputs x(std::move(values), c.inputs);
  const auto all = multiply(k, weight, x);
  check_against_double(k, c, data, x, all);
  for (size_t r = 0; r <= rows; ++r) {  // nothing is written beside the valid channels, nor behind the last row
    for (size_t n = r < rows ? c.outputs : 0; n < stride; ++n) CHECK(all[r * stride + n] == kUntouched);
  }
  for (size_t count = 1; count <= rows; count += count < 17 ? 1 : 37) {
    // Some tiles a call, in turn: neither rows nor tiles that go along may change a bit.
    const auto some = multiply(k, weight, x.slice(rows - count, count), nullptr, nullptr, 1 + count % kMaxTilesPerCall);
    CHECK_SAYING(same_bits(some.data(), all.data() + (rows - count) * stride, count * stride), info(c.format).name);
  }
}

void test_added(const Kernels& k, const Case& c, Random& random) {
  ThreadPool pool(1);
  const auto data = random_weight(c.format, c.outputs, c.inputs, random);
  const Weight weight(c.format, c.outputs, c.inputs, data.data(), pool);
  const Inputs x(random.normals(5 * c.inputs), c.inputs);
  const size_t stride = c.outputs + 3;
  const auto bias = random.normals(c.outputs), residual = random.normals(5 * stride);
  const auto plain = multiply(k, weight, x);
  const auto sum = multiply(k, weight, x, bias.data(), residual.data());
  for (size_t r = 0; r < 5; ++r) {
    for (size_t n = 0; n < c.outputs; ++n) {
      CHECK(sum[r * stride + n] == plain[r * stride + n] + bias[n] + residual[r * stride + n]);
    }
  }
}

// Signs of activations, by input: all alike, and such that parts of a sum cancel others or do not.
constexpr bool (*const kNegative[])(size_t input) = {
    [](size_t) { return false; },
    [](size_t) { return true; },
    [](size_t i) { return i % 2 == 1; },
    [](size_t i) { return i % 4 >= 2; },
    [](size_t i) { return i % 32 >= 16; },
};

// The largest quantised values there are times the largest bytes: where sums of 16 bits would overflow.
void test_extremes(const Kernels& k, Format format) {
  const size_t inputs = 512, outputs = 16, rows = 17;
  Random random(5);
  for (const int fill : {0xff, 0x00, 0x80, 0x7f}) {
    auto data = random_weight(format, outputs, inputs, random);
    std::vector<uint8_t> scales = data;
    std::fill(data.begin(), data.end(), static_cast<uint8_t>(fill));
    const FormatInfo& f = info(format);
    for (size_t at = 0; at < data.size(); at += static_cast<size_t>(f.bytes_per_block)) {
      if (format == Format::Q6_K) {
        std::memcpy(&data[at + 208], &scales[at + 208], 2);
      } else {
        const bool has_minimum = f.scale_bytes / f.record_groups >= 40;
        std::memcpy(&data[at], &scales[at], has_minimum ? 4 : 2);
      }
    }
    for (const auto negative : kNegative) {
      std::vector<float> x(rows * inputs);
      for (size_t i = 0; i < x.size(); ++i) x[i] = negative(i) ? -127.0f : 127.0f;
      test_case(k, {format, outputs, inputs}, data, std::move(x));
    }
  }
}

}  // namespace

void test_matmul(const Kernels& k) {
  Random random(21);
  for (int i = 0; i < kNumFormats; ++i) {
    const Format format = static_cast<Format>(i);
    const size_t block = std::max<size_t>(static_cast<size_t>(info(format).values_per_block), 1);
    const bool dense = is_dense(format);
    for (size_t blocks : dense ? std::vector<size_t>{1, 7, 64} : std::vector<size_t>{1, 2, 5}) {
      for (size_t outputs : {1, 16, 37}) {
        const Case c{format, outputs, blocks * block};
        test_case(k, c, random_weight(format, outputs, c.inputs, random), random.normals(17 * c.inputs));
      }
    }
    // Long rows, and as many as a call may have: kernels may go over them in spans.
    const Case large{format, 19, dense ? 1100 : (2300 / block + 1) * block};
    test_case(k, large, random_weight(format, large.outputs, large.inputs, random), random.normals(128 * large.inputs));
    test_added(k, {format, 21, dense ? 9 : 2 * block}, random);
    if (!dense) test_extremes(k, format);
  }
}

}  // namespace testing
}  // namespace foredraft
