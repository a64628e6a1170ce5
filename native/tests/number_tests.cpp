// Conversions, and the kernels that work on one row.
#include <algorithm>
#include <limits>

#include "half.h"
#include "tests/check.h"

namespace foredraft {
namespace testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

bool is_nan_half(uint32_t h) { return (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu) != 0; }

double half_meaning(uint32_t h) {
  const int exponent = static_cast<int>(h >> 10 & 31u), mantissa = static_cast<int>(h & 0x3ffu);
  const double sign = h & 0x8000u ? -1.0 : 1.0;
  if (exponent == 31) return sign * static_cast<double>(kInfinity);
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

// float to half as the kernels do it, one number at a time.
uint16_t stored(const Kernels& k, float value) {
  float x[16];
  std::fill(x, x + 16, value);
  uint16_t block[256];
  k.store_key(x, 16, block, 3);
  for (int e = 1; e < 16; ++e) CHECK(block[e * 16 + 3] == block[3]);
  return block[3];
}

void check_stored(const Kernels& k, float value, uint32_t expected) {
  for (uint32_t sign : {0u, 0x8000u}) {
    const float signed_value = sign ? -value : value;
    CHECK_SAYING(stored(k, signed_value) == (expected | sign), std::to_string(signed_value));
    CHECK_SAYING(float_to_half(signed_value) == (expected | sign), std::to_string(signed_value));
  }
}

// exp(x), as sum_exp computes it.
double exponential_of(const Kernels& k, float x) { return k.sum_exp(&x, 1, 0.0f, 1.0f); }

void test_exponential(const Kernels& k) {
  double worst = 0.0;
  for (float x = -87.0f; x < 88.0f; x += 0.0137f) {
    worst = std::max(worst, std::abs(exponential_of(k, x) / std::exp(static_cast<double>(x)) - 1.0));
  }
  CHECK_SAYING(worst < 3e-7, std::to_string(worst));
  CHECK(exponential_of(k, 0.0f) == 1.0);
  for (float x : {-87.5f, -100.0f, -1e30f, -kInfinity}) CHECK(exponential_of(k, x) < 2e-38);
}

void test_activations(const Kernels& k) {
  std::vector<float> gate, one;
  for (float x = -30.0f; x < 30.0f; x += 0.0103f) gate.push_back(x);
  for (float x : {-1000.0f, -88.0f, -1e-20f, 0.0f, 1e-20f, 88.0f, 1000.0f, 1e9f}) gate.push_back(x);
  one.assign(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  for (Activation activation : {Activation::Silu, Activation::GeluTanh}) {
    k.gated(gate.data(), one.data(), out.data(), gate.size(), activation);
    for (size_t i = 0; i < gate.size(); ++i) {
      const double g = gate[i];
      const double inner = 0.7978845608028654 * (g + 0.044715 * g * g * g);
      const double share = activation == Activation::Silu ? 1.0 / (1.0 + std::exp(-g)) : 0.5 * (1.0 + std::tanh(inner));
      const double exact = g * share;
      CHECK_SAYING(std::abs(out[i] - exact) <= 4e-7 * std::abs(g) + 1e-30, std::to_string(g));
    }
  }
  float bad = kNaN, result = 0.0f;
  k.gated(&bad, one.data(), &result, 1, Activation::Silu);
  CHECK(std::isnan(result));
}

void test_norm(const Kernels& k, Random& random) {
  for (size_t width : {1, 15, 16, 17, 64, 80, 576}) {
    const auto x = random.normals(width), weight = random.normals(width), residual = random.normals(width);
    std::vector<float> out(width + 1, 7.0f), added(width, 0.0f);
    k.rms_norm(x.data(), weight.data(), nullptr, out.data(), width, 1e-5f);
    k.rms_norm(x.data(), weight.data(), residual.data(), added.data(), width, 1e-5f);
    CHECK(out[width] == 7.0f);
    double squares = 0.0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
    for (size_t i = 0; i < width; ++i) {
      const double exact = x[i] * factor * weight[i];
      CHECK(std::abs(out[i] - exact) <= 1e-6 * std::abs(exact));
      CHECK(added[i] == out[i] + residual[i]);
    }
  }
}

void test_rope(const Kernels& k, Random& random) {
  for (RopeStyle style : {RopeStyle::Neox, RopeStyle::Interleaved}) {
    for (int rotated : {8, 64}) {
      const int half = rotated / 2, width = 64;
      const auto x = random.normals(static_cast<size_t>(3 * width));
      std::vector<float> cosines, sines;
      for (int i = 0; i < half; ++i) {
        cosines.push_back(std::cos(static_cast<float>(i)));
        sines.push_back(std::sin(static_cast<float>(i)));
      }
      auto y = x;
      k.rope(y.data(), 3, width, rotated, cosines.data(), sines.data(), style);
      for (int h = 0; h < 3; ++h) {
        for (int i = 0; i < half; ++i) {
          const bool neox = style == RopeStyle::Neox;
          const size_t first = static_cast<size_t>(h * width + (neox ? i : 2 * i));
          const size_t second = static_cast<size_t>(h * width + (neox ? i + half : 2 * i + 1));
          const double c = std::cos(static_cast<double>(i)), s = std::sin(static_cast<double>(i));
          CHECK(std::abs(y[first] - (x[first] * c - x[second] * s)) < 1e-6);
          CHECK(std::abs(y[second] - (x[second] * c + x[first] * s)) < 1e-6);
        }
        const size_t rest = static_cast<size_t>(h * width + rotated), rest_size = static_cast<size_t>(width - rotated);
        CHECK(same_bits(y.data() + rest, x.data() + rest, rest_size));
      }
    }
  }
}

void test_reductions(const Kernels& k, Random& random) {
  for (size_t size : {1, 2, 15, 16, 17, 33, 1000, 5003}) {
    auto x = random.normals(size, 3.0f);
    const size_t best = static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
    CHECK(k.argmax(x.data(), size) == best);
    CHECK(k.max(x.data(), size) == x[best]);
    double exact = 0.0;
    for (float v : x) exact += std::exp((static_cast<double>(v) - x[best]) * 1.25);
    CHECK(std::abs(k.sum_exp(x.data(), size, x[best], 1.25f) / exact - 1.0) < 2e-6);
    // Ties: the lowest index wins, wherever the others are.
    const size_t other = static_cast<size_t>(random.range(0, static_cast<int>(size) - 1));
    x[other] = x[best];
    CHECK(k.argmax(x.data(), size) == std::min(best, other));
    std::fill(x.begin(), x.end(), -kInfinity);
    CHECK(k.argmax(x.data(), size) == 0);
    CHECK(k.max(x.data(), size) == -kInfinity);
    x[other] = -5.0f;
    CHECK(k.argmax(x.data(), size) == other);
    x[size - 1] = kNaN;
    CHECK(k.argmax(x.data(), size) < size);  // a NaN is the caller's to find; it must only do no harm
  }
}

struct Quantized {
  std::vector<int8_t> bytes;
  std::vector<float> scales, sums32;
  std::vector<int32_t> starts32, starts16;
};

Quantized quantize(const Kernels& k, const std::vector<float>& x) {
  const size_t groups = x.size() / kGroup;
  Quantized q{std::vector<int8_t>(x.size()), std::vector<float>(groups), std::vector<float>(groups),
              std::vector<int32_t>(groups), std::vector<int32_t>(2 * groups)};
  k.quantize_row(x.data(), x.size(), 1, q.bytes.data(), q.scales.data(), q.sums32.data(), q.starts32.data(),
                 q.starts16.data());
  return q;
}

// Sums of products begin with `sum`, whether as one number or as two of 16 bits.
bool starts_from(int32_t start, int sum) {
  int16_t parts[2];
  std::memcpy(parts, &start, 4);
  return start == sum || parts[0] + parts[1] == sum;
}

void check_quantized(const std::vector<float>& x, const Quantized& q) {
  for (size_t g = 0; g < x.size() / kGroup; ++g) {
    double largest = 0.0;
    int sums[2] = {0, 0};
    for (size_t i = 0; i < kGroup; ++i) largest = std::max(largest, std::abs(static_cast<double>(x[g * kGroup + i])));
    CHECK(q.scales[g] == static_cast<float>(largest) / 127.0f || (largest < 1e-36 && q.scales[g] == 0.0f));
    for (size_t i = 0; i < kGroup; ++i) {
      const int byte = q.bytes[g * kGroup + i];
      sums[i / 16] += byte;
      CHECK(byte >= -127 && byte <= 127);
      const double error = static_cast<double>(q.scales[g]) * byte - x[g * kGroup + i];
      CHECK_SAYING(std::abs(error) <= 0.5001 * largest / 127.0 + 1e-36, std::to_string(x[g * kGroup + i]));
    }
    CHECK(starts_from(q.starts16[2 * g], -sums[0]) && starts_from(q.starts16[2 * g + 1], -sums[1]));
    CHECK(starts_from(q.starts32[g], -sums[0] - sums[1]));
    CHECK(q.sums32[g] == q.scales[g] * static_cast<float>(sums[0] + sums[1]));
  }
}

}  // namespace

void test_half(const Kernels& k) {
  // Every half there is, from the half to a float and back.
  std::vector<uint16_t> tiles(65536);
  for (uint32_t h = 0; h < 65536; ++h) tiles[h] = static_cast<uint16_t>(h);
  const float one = 1.0f;
  const Rows rows{&one, nullptr, nullptr, nullptr, nullptr, nullptr, 1, 1};
  for (uint32_t h = 0; h < 65536; ++h) {
    if (h % 16 == 0) {
      float out[16];
      k.matmul[static_cast<int>(Format::F16)](Tiles{reinterpret_cast<const uint8_t*>(&tiles[h]), 0, 1}, rows, 1,
                                                   Output{out, nullptr, nullptr, 16, 16});
      for (uint32_t i = 0; i < 16; ++i) {
        CHECK(is_nan_half(h + i) ? std::isnan(out[i]) : static_cast<double>(out[i]) == half_meaning(h + i));
      }
    }
    const float value = half_to_float(static_cast<uint16_t>(h));
    CHECK(is_nan_half(h) ? std::isnan(value) : static_cast<double>(value) == half_meaning(h));
    const uint16_t back = stored(k, value);
    CHECK(is_nan_half(h) ? is_nan_half(back) : back == h);
    CHECK(is_nan_half(h) ? is_nan_half(float_to_half(value)) : float_to_half(value) == h);
  }
  // Between two halves: the nearer one, in the middle the even one.
  for (uint32_t h = 0; h < 0x7c00u; ++h) {
    const double above = h == 0x7bffu ? 65536.0 : half_meaning(h + 1);
    const float middle = static_cast<float>((half_meaning(h) + above) / 2.0);
    check_stored(k, middle, h % 2 == 0 ? h : h + 1);
    check_stored(k, std::nextafter(middle, 0.0f), h);
    check_stored(k, std::nextafter(middle, kInfinity), h + 1);
  }
  check_stored(k, kInfinity, 0x7c00u);
  check_stored(k, 1e30f, 0x7c00u);
  check_stored(k, 1e-30f, 0u);
  // Values never become infinite or NaN in the cache.
  const float extreme[16] = {kInfinity, -kInfinity, kNaN, 1e30f, -1e30f, 65504.0f, 65519.0f, -65520.0f};
  uint16_t block[256] = {};
  k.store_value(extreme, 16, block, 2);
  for (int i = 0; i < 16; ++i) CHECK((block[2 * 16 + i] & 0x7c00u) != 0x7c00u);
  CHECK(block[2 * 16] == 0x7bffu && block[2 * 16 + 1] == 0xfbffu && block[2 * 16 + 5] == 0x7bffu);
}

void test_rowwise(const Kernels& k) {
  Random random(11);
  test_exponential(k);
  test_activations(k);
  test_norm(k, random);
  test_rope(k, random);
  test_reductions(k, random);
}

void test_quantize(const Kernels& k) {
  Random random(12);
  for (float scale : {1.0f, 1e-3f, 1e20f, 1e37f, 1e-30f, 1e-37f, 1e-42f, 0.0f}) {
    auto x = random.normals(96, scale);
    x[40] = 0.0f;
    check_quantized(x, quantize(k, x));
  }
  auto ties = random.normals(32);  // exactly between two bytes: to the even one
  ties[0] = 127.0f;
  for (size_t i = 1; i < 32; ++i) ties[i] = static_cast<float>(i) - 16.5f;
  const auto tied = quantize(k, ties);
  for (size_t i = 1; i < 32; ++i) CHECK(tied.bytes[i] % 2 == 0);
  // Within a group, NaN or infinity anywhere must reach every product; the group beside it is not touched.
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    for (size_t at = 32; at < 64; ++at) {
      auto x = random.normals(96);
      x[at] = bad;
      const auto q = quantize(k, x);
      CHECK(!std::isfinite(q.scales[1]));
      CHECK(std::isfinite(q.scales[0]) && std::isfinite(q.scales[2]));
      CHECK(!std::isfinite(q.scales[1] * 0.0f + q.sums32[1]));
    }
  }
}

}  // namespace testing
}  // namespace foredraft
