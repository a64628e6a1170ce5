// Sixteen-lane vectors as the compiler's generic vectors: the fallback that runs on every processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"
#include "simd/whole_sums.h"

namespace foredraft {
namespace {

struct Portable : WholeSums<Portable> {
  static constexpr const char* kName = "portable";
  static constexpr int kMaxRows = 2;  // measured: more do not pay, since little stays in registers
  typedef float F32 __attribute__((vector_size(64)));
  typedef int32_t I32 __attribute__((vector_size(64)));
  typedef uint8_t Bytes __attribute__((vector_size(64)));
  typedef int16_t I16 __attribute__((vector_size(64)));
  typedef uint16_t Halves __attribute__((vector_size(32)));

  static F32 zero() { return F32{}; }
  static F32 load(const float* p) {
    F32 r;
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static void store(float* p, F32 a) { std::memcpy(p, &a, sizeof a); }
  static F32 broadcast(float x) { return F32{} + x; }
  static F32 add(F32 a, F32 b) { return a + b; }
  static F32 sub(F32 a, F32 b) { return a - b; }
  static F32 mul(F32 a, F32 b) { return a * b; }
  static F32 div(F32 a, F32 b) { return a / b; }
  static F32 max(F32 a, F32 b) { return a > b ? a : b; }
  static F32 min(F32 a, F32 b) { return a < b ? a : b; }
  // Two roundings: a fused multiply-add without hardware for it would be a library call per lane.
  static F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }
  static F32 abs(F32 a) { return from_bits(to_bits(a) & 0x7fffffff); }
  // To the nearest integer, ties to even, for magnitudes below 2^22.
  static F32 round(F32 a) {
    const F32 magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves no bits for a fraction
    return (a + magic) - magic;
  }
  static F32 from_half(const uint16_t* p) {
    // The bits moved into place make a float 2^112 too small, subnormal or not; infinities and NaN need their exponent.
    Halves halves;
    std::memcpy(&halves, p, sizeof halves);
    const I32 h = __builtin_convertvector(halves, I32);
    const I32 magnitude = (h & 0x7fff) << 13;
    const I32 special = (magnitude >= 0x0f800000) & 0x7f800000;
    return from_bits(to_bits(from_bits(magnitude) * 0x1p112f) | special | ((h & 0x8000) << 16));
  }
  static F32 from_bfloat(const uint16_t* p) {
    I32 r;
    for (int i = 0; i < 16; ++i) r[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
    return from_bits(r);
  }
  static void to_half(uint16_t* p, F32 a) {
    for (int i = 0; i < 16; ++i) p[i] = float_to_half(a[i]);
  }
  static F32 from_u8(const uint8_t* p) {
    F32 r;
    for (int i = 0; i < 16; ++i) r[i] = p[i];
    return r;
  }
  static F32 from_i8(const int8_t* p) {
    F32 r;
    for (int i = 0; i < 16; ++i) r[i] = p[i];
    return r;
  }
  static void to_i8(int8_t* p, F32 a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a[i]);
  }
  static int sum_bytes(const int8_t* p) {  // of sixteen
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += p[i];
    return sum;
  }
  // The largest magnitude of both, where NaN is the largest of all.
  static float largest_magnitude(F32 a, F32 b) {
    const I32 first = to_bits(abs(a)), second = to_bits(abs(b));
    const I32 bits = first > second ? first : second;
    int32_t largest = 0;
    for (int i = 0; i < 16; ++i) largest = bits[i] > largest ? bits[i] : largest;
    return bits_to_float(static_cast<uint32_t>(largest));
  }
  static F32 exp2_integral(F32 a) { return from_bits((__builtin_convertvector(a, I32) + 127) << 23); }
  static F32 select(uint32_t keep, F32 a, F32 other) {
    for (int i = 0; i < 16; ++i) a[i] = (keep >> i) & 1u ? a[i] : other[i];
    return a;
  }
  static F32 keep_if_greater(F32 a, F32 test, F32 bound) { return test > bound ? a : F32{}; }

  static I32 zero_i32() { return I32{}; }
  static I32 add(I32 a, I32 b) { return a + b; }
  static F32 to_float(I32 a) { return __builtin_convertvector(a, F32); }
  using Sums = I32;
  static I32 widen(Sums v) { return v; }
  template <int kShift>
  static Sums start(const int32_t* of) {
    return I32{} + *of * (1 << kShift);
  }
  // Products of 16 bits, which every processor multiplies many at a time: 2 * 63 * 127 and 2 * 128 * 127 still fit.
  static I32 dot(I32 acc, Bytes w, const int8_t* x) {
    const I16 both = shorts(w);
    return add_pairs(acc, (both & 0xff) * two(x[0], x[2]) + ((both >> 8) & 0xff) * two(x[1], x[3]));
  }
  static constexpr int kSignedOffset = 0;
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) {
    const I16 both = shorts(w);
    return add_pairs(acc, ((both << 8) >> 8) * two(x[0], x[2]) + (both >> 8) * two(x[1], x[3]));
  }

  static Bytes load_bytes(const uint8_t* p) {
    Bytes r;
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static Bytes low_nibbles(Bytes a) { return a & 0x0f; }
  static Bytes high_nibbles(Bytes a) { return a >> 4; }
  // Bits shifted left by kLeft (right when negative), masked to kMask.
  template <int kLeft, int kMask>
  static Bytes take_bits(Bytes bits) {
    if constexpr (kLeft >= 0) return (bits << kLeft) & static_cast<uint8_t>(kMask);
    if constexpr (kLeft < 0) return (bits >> -kLeft) & static_cast<uint8_t>(kMask);
  }
  // base | take_bits(bits), where base has no bit of the mask set.
  template <int kLeft, int kMask>
  static Bytes insert_bits(Bytes base, Bytes bits) {
    return base | take_bits<kLeft, kMask>(bits);
  }
  static void prefetch(const uint8_t*) {}

 private:
  static F32 from_bits(I32 bits) {
    F32 r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  }
  static I32 to_bits(F32 a) {
    I32 r;
    std::memcpy(&r, &a, sizeof r);
    return r;
  }
  static I16 shorts(Bytes b) {
    I16 r;
    std::memcpy(&r, &b, sizeof r);
    return r;
  }
  // `even` in the even lanes and `odd` in the odd ones.
  static I16 two(int8_t even, int8_t odd) {
    const I32 both = I32{} + static_cast<int32_t>((static_cast<uint32_t>(odd) << 16) | (static_cast<uint32_t>(even) & 0xffffu));
    I16 r;
    std::memcpy(&r, &both, sizeof r);
    return r;
  }
  static I32 add_pairs(I32 acc, I16 v) {
    I32 r;
    std::memcpy(&r, &v, sizeof r);
    return acc + ((r << 16) >> 16) + (r >> 16);
  }
};

}  // namespace
}  // namespace foredraft
