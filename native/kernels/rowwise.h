// Kernels between the matmuls: norm, gate, rotary positions, and reductions over the vocabulary.
#pragma once

#include <cmath>

#include "half.h"
#include "kernels.h"

namespace foredraft {
namespace {

// Adds the sixteen lanes in a fixed order.
template <class V>
inline float add_lanes(typename V::F32 v) {
  float lanes[16];
  V::store(lanes, v);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

// exp by range reduction to [-ln2/2, ln2/2] and a polynomial of degree 6 (Cody and Waite's scheme; relative error
// about 2e-7). Arguments below -87 give (nearly) zero, above 88 a very large number.
template <class V>
inline typename V::F32 exponential(typename V::F32 x) {
  const auto clamped = V::min(V::max(x, V::broadcast(-87.0f)), V::broadcast(88.0f));
  const auto n = V::round(V::mul(clamped, V::broadcast(1.44269504088896341f)));
  auto r = V::fma(n, V::broadcast(-0.693359375f), clamped);
  r = V::fma(n, V::broadcast(2.12194440e-4f), r);
  auto p = V::broadcast(1.3888889e-3f);
  p = V::fma(p, r, V::broadcast(8.3333333e-3f));
  p = V::fma(p, r, V::broadcast(4.1666667e-2f));
  p = V::fma(p, r, V::broadcast(1.6666667e-1f));
  p = V::fma(p, r, V::broadcast(0.5f));
  p = V::fma(p, r, V::broadcast(1.0f));
  p = V::fma(p, r, V::broadcast(1.0f));
  return V::mul(p, V::exp2_integral(n));
}

template <class V>
inline typename V::F32 tanh_of(typename V::F32 x) {
  // tanh(x) = 1 - 2 / (exp(2x) + 1)
  const auto e = exponential<V>(V::add(x, x));
  return V::sub(V::broadcast(1.0f), V::div(V::broadcast(2.0f), V::add(e, V::broadcast(1.0f))));
}

// Loads up to 16 floats, zeros behind the end.
template <class V>
inline typename V::F32 load_tail(const float* p, size_t left) {
  if (left >= 16) return V::load(p);
  float lanes[16] = {};
  for (size_t i = 0; i < left; ++i) lanes[i] = p[i];
  return V::load(lanes);
}

template <class V>
inline void store_tail(float* p, typename V::F32 v, size_t left) {
  if (left >= 16) return V::store(p, v);
  float lanes[16];
  V::store(lanes, v);
  for (size_t i = 0; i < left; ++i) p[i] = lanes[i];
}

template <class V>
void rms_norm(const float* x, const float* weight, const float* residual, float* out, size_t width, float epsilon) {
  auto squares = V::zero();
  for (size_t i = 0; i < width; i += 16) {
    const auto v = load_tail<V>(x + i, width - i);
    squares = V::fma(v, v, squares);
  }
  const float mean = add_lanes<V>(squares) / static_cast<float>(width);
  const auto factor = V::broadcast(1.0f / __builtin_sqrtf(mean + epsilon));
  for (size_t i = 0; i < width; i += 16) {
    const size_t left = width - i;
    auto v = V::mul(V::mul(load_tail<V>(x + i, left), factor), load_tail<V>(weight + i, left));
    if (residual) v = V::add(v, load_tail<V>(residual + i, left));
    store_tail<V>(out + i, v, left);
  }
}

template <class V>
void gated(const float* gate, const float* up, float* out, size_t width, Activation activation) {
  const auto one = V::broadcast(1.0f);
  for (size_t i = 0; i < width; i += 16) {
    const size_t left = width - i;
    const auto g = load_tail<V>(gate + i, left);
    typename V::F32 a;
    if (activation == Activation::Silu) {
      a = V::div(g, V::add(one, exponential<V>(V::sub(V::zero(), g))));
    } else {
      const auto cube = V::mul(V::mul(g, g), g);
      const auto inner = V::mul(V::broadcast(0.7978845608028654f), V::fma(V::broadcast(0.044715f), cube, g));
      a = V::mul(V::mul(V::broadcast(0.5f), g), V::add(one, tanh_of<V>(inner)));
    }
    store_tail<V>(out + i, V::mul(a, load_tail<V>(up + i, left)), left);
  }
}

template <class V>
void rope(float* row, int num_heads, int head_width, int rotated, const float* cosines, const float* sines,
          RopeStyle style) {
  const int half = rotated / 2;
  for (int h = 0; h < num_heads; ++h, row += head_width) {
    for (int i = 0; i < half; ++i) {
      const int first = style == RopeStyle::Neox ? i : 2 * i;
      const int second = style == RopeStyle::Neox ? i + half : 2 * i + 1;
      const float a = row[first], b = row[second];
      row[first] = a * cosines[i] - b * sines[i];
      row[second] = b * cosines[i] + a * sines[i];
    }
  }
}

template <class V>
float max_of(const float* x, size_t size) {
  float lanes[16];
  for (float& lane : lanes) lane = -INFINITY;
  auto best = V::load(lanes);
  size_t i = 0;
  for (; i + 16 <= size; i += 16) best = V::max(best, V::load(x + i));
  V::store(lanes, best);
  float largest = -INFINITY;
  for (float lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < size; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

template <class V>
size_t argmax(const float* x, size_t size) {
  const float largest = max_of<V>(x, size);
  for (size_t i = 0; i < size; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;
}

template <class V>
double sum_exp(const float* x, size_t size, float maximum, float scale) {
  double total = 0.0;
  const auto shift = V::broadcast(maximum), factor = V::broadcast(scale);
  for (size_t begin = 0; begin < size; begin += 4096) {  // partial sums keep the rounding error small
    auto sum = V::zero();
    const size_t end = begin + 4096 < size ? begin + 4096 : size;
    for (size_t i = begin; i < end; i += 16) {
      auto e = exponential<V>(V::mul(V::sub(load_tail<V>(x + i, end - i), shift), factor));
      if (end - i < 16) e = V::select((1u << (end - i)) - 1u, e, V::zero());
      sum = V::add(sum, e);
    }
    total += add_lanes<V>(sum);
  }
  return total;
}

}  // namespace
}  // namespace foredraft
