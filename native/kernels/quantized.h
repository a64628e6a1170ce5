// How each integer format yields its quantised values and scales, for any vector set V (see simd/).
#pragma once

#include <cstddef>
#include <cstdint>

#include "format.h"

namespace foredraft {
namespace {

// Quad kQuad of a group, as format.h lays it out for values of 4, 5, 6 or 8 bits.
template <class V, int kGroupBytes, int kQuad>
[[gnu::always_inline]] inline typename V::Bytes read_quad(const uint8_t* group) {
  // Has bytes loaded anew where some are used once more: kept until then, they would push others out of registers.
  if constexpr (kGroupBytes == 320 ? kQuad >= 5 : kGroupBytes == 384 && kQuad % 4 == 3) asm("" : "+r"(group));
  const auto bytes = [&](int index) __attribute__((always_inline)) { return V::load_bytes(group + 64 * index); };
  if constexpr (kGroupBytes == 256) {
    return kQuad % 2 == 0 ? V::low_nibbles(bytes(kQuad / 2)) : V::high_nibbles(bytes(kQuad / 2));
  } else if constexpr (kGroupBytes == 320 && kQuad < 5) {
    return V::template take_bits<0, 0x1f>(bytes(kQuad));
  } else if constexpr (kGroupBytes == 320 && kQuad == 7) {
    const auto lowest = V::template insert_bits<-4, 0x02>(V::template take_bits<-5, 0x01>(bytes(3)), bytes(1));
    return V::template insert_bits<-3, 0x1c>(lowest, bytes(4));
  } else if constexpr (kGroupBytes == 320) {
    constexpr int kFirst = 2 * (kQuad - 5);
    return V::template insert_bits<-3, 0x1c>(V::template take_bits<-6, 0x03>(bytes(kFirst + 1)), bytes(kFirst));
  } else if constexpr (kGroupBytes == 384 && kQuad % 4 < 3) {
    return V::template take_bits<0, 0x3f>(bytes(kQuad - kQuad / 4));
  } else if constexpr (kGroupBytes == 384) {
    constexpr int kFirst = 3 * (kQuad / 4);
    const auto pair = V::template take_bits<-6, 0x03>(bytes(kFirst));
    const auto lowest = V::template insert_bits<-4, 0x0c>(pair, bytes(kFirst + 1));
    return V::template insert_bits<-2, 0x30>(lowest, bytes(kFirst + 2));
  } else {
    return bytes(kQuad);
  }
}

constexpr bool has_minimum(Format format) {
  return format == Format::Q4_1 || format == Format::Q5_1 || format == Format::Q4_K || format == Format::Q5_K;
}

// Whether the groups of a record have whole numbers for scales, which all are multiplied by one number.
constexpr bool has_whole_scales(Format format) {
  return kFormats[static_cast<int>(format)].values_per_block == kSuper;
}

// The values of a format are w = scale * (q - centre), or scale * q + minimum; the centre is a power of two.
// -1: no centre.
template <class V>
constexpr int centre_shift(Format format) {
  switch (format) {
    case Format::Q4_0:
      return 3;
    case Format::Q5_0:
      return 4;
    case Format::Q6_K:
      return 5;
    case Format::Q8_0:
      return V::kSignedOffset == 128 ? 7 : -1;
    default:
      return -1;
  }
}

// The largest magnitude of q - centre. Not for Q8_0.
constexpr int largest_value(Format format) {
  switch (format) {
    case Format::Q4_0:
      return 8;
    case Format::Q4_1:
    case Format::Q4_K:
      return 15;
    case Format::Q5_0:
      return 16;
    case Format::Q5_1:
    case Format::Q5_K:
      return 31;
    default:
      return 32;
  }
}

template <class V>
struct Scales {
  typename V::F32 scale[2];  // of the two half groups; one and the same but for Q6_K
  typename V::F32 minimum;   // where the format has one
};

// Scales of group `index` of a record.
template <class V, Format kFormat>
inline Scales<V> read_scales(const uint8_t* record, size_t index) {
  constexpr const FormatInfo& kInfo = kFormats[static_cast<int>(kFormat)];
  Scales<V> s{};
  if constexpr (kFormat == Format::Q4_K || kFormat == Format::Q5_K) {
    const uint8_t* const own = record + 64 + 32 * index;
    const auto d = V::from_half(reinterpret_cast<const uint16_t*>(record));
    const auto dmin = V::from_half(reinterpret_cast<const uint16_t*>(record + 32));
    s.scale[0] = s.scale[1] = V::mul(d, V::from_u8(own));
    s.minimum = V::sub(V::zero(), V::mul(dmin, V::from_u8(own + 16)));
  } else if constexpr (kFormat == Format::Q6_K) {
    const auto d = V::from_half(reinterpret_cast<const uint16_t*>(record));
    for (int half = 0; half < 2; ++half) {
      s.scale[half] = V::mul(d, V::from_i8(reinterpret_cast<const int8_t*>(record + 32 + 32 * index + 16 * half)));
    }
  } else {
    constexpr size_t kBytes = kInfo.scale_bytes / kInfo.record_groups;
    const uint8_t* const own = record + index * kBytes;
    s.scale[0] = s.scale[1] = V::from_half(reinterpret_cast<const uint16_t*>(own));
    if constexpr (has_minimum(kFormat)) s.minimum = V::from_half(reinterpret_cast<const uint16_t*>(own + 32));
  }
  return s;
}

// The whole scales of group `index` of a record, for vector sets that multiply by them while they widen sums.
template <class V>
struct WholeScales {
  typename V::Multipliers scale[2];  // of the two half groups
};

template <class V, Format kFormat>
inline WholeScales<V> read_whole_scales(const uint8_t* record, size_t index) {
  if constexpr (kFormat == Format::Q6_K) {
    const auto* const own = reinterpret_cast<const int8_t*>(record + 32 + 32 * index);
    return {{V::multipliers(own), V::multipliers(own + 16)}};
  } else {
    const auto scale = V::multipliers(record + 64 + 32 * index);
    return {{scale, scale}};
  }
}

}  // namespace
}  // namespace foredraft
