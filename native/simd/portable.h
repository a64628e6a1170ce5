// Sixteen-lane vectors as four of the compiler's generic vectors of 16 bytes, the length that nearly every processor
// has: the fallback that runs anywhere. Its operations are those that SSE2, too, has instructions for. The bytes of
// numbers must lie in memory with the lowest first.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace foredraft {
namespace {

struct Portable {
  static constexpr const char* kName = "portable";
  static constexpr int kMaxRows = 2;  // measured: with more, sums do not stay in registers
  typedef float Floats __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(16)));
  typedef int16_t Shorts __attribute__((vector_size(16)));
  typedef uint16_t UnsignedShorts __attribute__((vector_size(16)));
  typedef uint16_t HalfVector __attribute__((vector_size(8)));
  struct F32 {
    Floats part[4];
  };
  struct I32 {
    Ints part[4];
  };
  struct Bytes {  // 16 channels x 4 consecutive inner positions
    UnsignedShorts part[4];
  };

  static F32 zero() { return {}; }
  static F32 load(const float* p) { return read<F32>(p); }
  static void store(float* p, F32 a) { std::memcpy(p, &a, sizeof a); }
  static F32 broadcast(float x) {
    const Floats all = Floats{} + x;
    return {{all, all, all, all}};
  }
  static F32 add(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] + b.part[i]; });
  }
  static F32 sub(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] - b.part[i]; });
  }
  static F32 mul(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] * b.part[i]; });
  }
  static F32 div(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] / b.part[i]; });
  }
  static F32 max(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
  }
  static F32 min(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
  }
  // Two roundings: a fused multiply-add without hardware for it would be a library call per lane.
  static F32 fma(F32 a, F32 b, F32 c) {
    return of_parts<F32>([&](int i) { return a.part[i] * b.part[i] + c.part[i]; });
  }
  static F32 abs(F32 a) {
    return of_parts<F32>([&](int i) { return as<Floats>(as<Ints>(a.part[i]) & 0x7fffffff); });
  }
  // To the nearest integer, ties to even, for magnitudes below 2^22.
  static F32 round(F32 a) {
    const F32 magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it leaves no bits for a fraction
    return sub(add(a, magic), magic);
  }
  static F32 from_half(const uint16_t* p) {
    // The bits moved into place make a float 2^112 too small, subnormal or not; infinities and NaN need their exponent.
    return of_parts<F32>([&](int i) {
      const Ints h = wide(p + 4 * i);
      const Ints magnitude = (h & 0x7fff) << 13;
      const Ints special = (magnitude >= 0x0f800000) & 0x7f800000;
      return as<Floats>(as<Ints>(as<Floats>(magnitude) * 0x1p112f) | special | ((h & 0x8000) << 16));
    });
  }
  static F32 from_bfloat(const uint16_t* p) {
    return of_parts<F32>([&](int i) { return as<Floats>(wide(p + 4 * i) << 16); });
  }
  static void to_half(uint16_t* p, F32 a) {
    for (int i = 0; i < 16; ++i) p[i] = float_to_half(a.part[i / 4][i % 4]);
  }
  static F32 from_u8(const uint8_t* p) {
    return to_float(of_parts<I32>([&](int i) { return four_ints(p + 4 * i); }));
  }
  static F32 from_i8(const int8_t* p) {
    return to_float(of_parts<I32>([&](int i) { return four_ints(p + 4 * i); }));
  }
  static void to_i8(int8_t* p, F32 a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a.part[i / 4][i % 4]);
  }
  static int sum_bytes(const int8_t* p) {  // of sixteen
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += p[i];
    return sum;
  }
  // The largest magnitude of both, where NaN is the largest of all.
  static float largest_magnitude(F32 a, F32 b) {
    Ints bits{};
    for (int i = 0; i < 8; ++i) {
      const Ints own = as<Ints>((i < 4 ? a : b).part[i % 4]) & 0x7fffffff;
      bits = bits > own ? bits : own;
    }
    int32_t largest = 0;
    for (int i = 0; i < 4; ++i) largest = bits[i] > largest ? bits[i] : largest;
    return bits_to_float(static_cast<uint32_t>(largest));
  }
  static F32 exp2_integral(F32 a) {
    return of_parts<F32>([&](int i) {
      return as<Floats>((__builtin_convertvector(a.part[i], Ints) + 127) << 23);
    });
  }
  static F32 select(uint32_t keep, F32 a, F32 other) {
    return of_parts<F32>([&](int i) {
      const Ints own{1 << 4 * i, 2 << 4 * i, 4 << 4 * i, 8 << 4 * i};
      return (own & static_cast<int32_t>(keep)) == own ? a.part[i] : other.part[i];
    });
  }
  static F32 keep_if_greater(F32 a, F32 test, F32 bound) {
    return of_parts<F32>([&](int i) { return test.part[i] > bound.part[i] ? a.part[i] : Floats{}; });
  }

  static I32 add(I32 a, I32 b) {
    return of_parts<I32>([&](int i) { return a.part[i] + b.part[i]; });
  }
  static F32 to_float(I32 a) {
    return of_parts<F32>([&](int i) { return __builtin_convertvector(a.part[i], Floats); });
  }
  // Sums of products, two lanes of 16 bits a channel: of the first two bytes of each quad, and of the others. All
  // processors multiply such lanes, many at a time.
  struct Sums {
    UnsignedShorts part[4];  // unsigned, since they may pass the ends of their range and come back
  };
  static constexpr bool holds(int magnitude, int dots) { return dots * 2 * magnitude * 127 <= 32767; }
  static constexpr bool kWidensByMultiplying = false;
  static int32_t start_of(const int8_t* x, int count) {
    UnsignedShorts sums{};
    for (int i = 0; i < count; i += 4) {
      const Quad four(x + i);
      sums -= four.even + four.odd;
    }
    return as<Ints>(sums)[0];
  }
  template <int kShift>
  static Sums start(const int32_t* of) {
    const UnsignedShorts all = as<UnsignedShorts>(Ints{} + *of) << kShift;
    return {{all, all, all, all}};
  }
  // acc[c] += sum over i < 4 of w[c][i] * x[i], w unsigned and x signed.
  static Sums dot(Sums acc, Bytes w, const int8_t* x) {
    const Quad four(x);
    return of_parts<Sums>([&](int i) {
      return acc.part[i] + (w.part[i] & 0xff) * four.even + (w.part[i] >> 8) * four.odd;
    });
  }
  static I32 widen(I32 v) { return v; }
  static I32 widen(Sums v) {
    return of_parts<I32>([&](int i) { return pairs(v.part[i]); });
  }
  static constexpr int kSignedOffset = 0;
  // No sum of two products overflows, since |w| <= 128 and |x| <= 127.
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) {
    const Quad four(x);
    return of_parts<I32>([&](int i) {
      const Shorts both = as<Shorts>(w.part[i]);
      const UnsignedShorts even = as<UnsignedShorts>((both << 8) >> 8), odd = as<UnsignedShorts>(both >> 8);
      return acc.part[i] + pairs(even * four.even + odd * four.odd);
    });
  }

  static Bytes load_bytes(const uint8_t* p) { return read<Bytes>(p); }
  static Bytes low_nibbles(Bytes a) { return take_bits<0, 0x0f>(a); }
  static Bytes high_nibbles(Bytes a) { return take_bits<-4, 0x0f>(a); }
  // Bits shifted left by kLeft (right when negative), masked to kMask.
  template <int kLeft, int kMask>
  static Bytes take_bits(Bytes bits) {
    return of_parts<Bytes>([&](int i) {
      UnsignedShorts shifted = bits.part[i];
      if constexpr (kLeft > 0) shifted = shifted << kLeft;
      if constexpr (kLeft < 0) shifted = shifted >> -kLeft;
      return shifted & static_cast<uint16_t>(0x0101 * kMask);
    });
  }
  // base | take_bits(bits), where base has no bit of the mask set.
  template <int kLeft, int kMask>
  static Bytes insert_bits(Bytes base, Bytes bits) {
    const Bytes taken = take_bits<kLeft, kMask>(bits);
    return of_parts<Bytes>([&](int i) { return base.part[i] | taken.part[i]; });
  }
  static void prefetch(const uint8_t*) {}

 private:
  // Four bytes as 16-bit lanes, again and again: the even ones, and the odd ones.
  struct Quad {
    UnsignedShorts even, odd;
    explicit Quad(const int8_t* x) {
      int32_t four;
      std::memcpy(&four, x, 4);
      const Shorts all = as<Shorts>(Ints{} + four);
      even = as<UnsignedShorts>((all << 8) >> 8);
      odd = as<UnsignedShorts>(all >> 8);
    }
  };
  static Ints pairs(UnsignedShorts v) {
    const Ints both = as<Ints>(v);
    return ((both << 16) >> 16) + (both >> 16);
  }
  template <class Vectors, class Part>
  [[gnu::always_inline]] static Vectors of_parts(Part part) {
    return {{part(0), part(1), part(2), part(3)}};
  }
  template <class To, class From>
  static To as(From from) {
    return reinterpret_cast<To>(from);
  }
  template <class Vectors>
  static Vectors read(const void* p) {
    Vectors r;
    std::memcpy(&r, p, sizeof r);
    return r;
  }
  static Ints wide(const uint16_t* p) { return __builtin_convertvector(read<HalfVector>(p), Ints); }
  template <class Byte>
  static Ints four_ints(const Byte* p) {
    return Ints{p[0], p[1], p[2], p[3]};
  }
};

}  // namespace
}  // namespace foredraft
