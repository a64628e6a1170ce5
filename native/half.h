// Conversions between float and the two 16-bit formats, in plain C++. Internal linkage: this header is compiled into
// translation units with different instruction sets, and none of them may lend its code to another.
#pragma once

#include <cstdint>
#include <cstring>

namespace foredraft {
namespace {

inline float bits_to_float(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline uint32_t float_to_bits(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

inline float bfloat_to_float(uint16_t b) { return bits_to_float(static_cast<uint32_t>(b) << 16); }

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) return bits_to_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bits_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float subnormal = static_cast<float>(mantissa) * bits_to_float(0x33800000u);  // mantissa * 2^-24
  return sign ? -subnormal : subnormal;
}

// Rounds to nearest, ties to even, as the processors' own conversion does.
inline uint16_t float_to_half(float f) {
  const uint32_t bits = float_to_bits(f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x33000001u) return sign;                                    // rounds to zero
  const int32_t exponent = static_cast<int32_t>(magnitude >> 23) - 112;
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const int32_t shift = exponent > 0 ? 13 : 14 - exponent;
  const uint32_t half_way = 1u << (shift - 1);
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  mantissa >>= shift;
  if (rest > half_way || (rest == half_way && (mantissa & 1u))) ++mantissa;
  // A carry out of the mantissa moves into the exponent, which is what rounding up means.
  const uint32_t base = exponent > 0 ? static_cast<uint32_t>(exponent - 1) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + mantissa));
}

}  // namespace
}  // namespace foredraft
