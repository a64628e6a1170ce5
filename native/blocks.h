// The block formats of GGUF files, one block of one channel at a time. The layouts are those of the GGUF specification.
#pragma once

#include <cstdint>
#include <cstring>

#include "format.h"
#include "half.h"

namespace foredraft {
namespace {

inline uint16_t read_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// Six-bit scale and minimum of sub-block j (j < 8) of a Q4_K or Q5_K block, from its twelve packed bytes.
inline void k_scale_min(int j, const uint8_t* packed, uint8_t* scale, uint8_t* minimum) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *minimum = packed[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((packed[j + 4] & 0x0f) | ((packed[j - 4] >> 6) << 4));
    *minimum = static_cast<uint8_t>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4));
  }
}

// Unsigned quantised values of 32 inputs: group `group` of the channel whose blocks begin at `row`.
// Q8_0 gives the signed bytes as they are.
inline void unpack_group(Format format, const uint8_t* row, size_t group, uint8_t* q) {
  const FormatInfo& f = info(format);
  const size_t per_block = static_cast<size_t>(f.values_per_block) / kGroup;
  const uint8_t* block = row + group / per_block * static_cast<size_t>(f.bytes_per_block);
  const int sub = static_cast<int>(group % per_block);
  switch (format) {
    case Format::Q4_0:
    case Format::Q4_1: {
      const uint8_t* nibbles = block + (format == Format::Q4_0 ? 2 : 4);
      for (int i = 0; i < 16; ++i) {
        q[i] = nibbles[i] & 0x0f;
        q[i + 16] = nibbles[i] >> 4;
      }
      return;
    }
    case Format::Q5_0:
    case Format::Q5_1: {
      const int header = format == Format::Q5_0 ? 2 : 4;
      uint32_t high;
      std::memcpy(&high, block + header, 4);
      const uint8_t* nibbles = block + header + 4;
      for (int i = 0; i < 16; ++i) {
        q[i] = static_cast<uint8_t>((nibbles[i] & 0x0f) | (((high >> i) & 1u) << 4));
        q[i + 16] = static_cast<uint8_t>((nibbles[i] >> 4) | (((high >> (i + 16)) & 1u) << 4));
      }
      return;
    }
    case Format::Q8_0:
      std::memcpy(q, block + 2, 32);
      return;
    case Format::Q4_K:
    case Format::Q5_K: {
      const int shift = (sub & 1) * 4;
      const uint8_t* nibbles = block + (format == Format::Q4_K ? 16 : 48) + (sub / 2) * 32;
      for (int i = 0; i < 32; ++i) q[i] = (nibbles[i] >> shift) & 0x0f;
      if (format == Format::Q5_K) {
        const uint8_t* high = block + 16;
        for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(q[i] | (((high[i] >> sub) & 1) << 4));
      }
      return;
    }
    case Format::Q6_K: {
      // 128 values a half: low nibbles in 64 bytes, two high bits in 32.
      const int half = sub / 4, part = sub % 4;
      const uint8_t* low = block + half * 64 + (part & 1) * 32;
      const uint8_t* high = block + 128 + half * 32;
      const int low_shift = part >= 2 ? 4 : 0, high_shift = part * 2;
      for (int i = 0; i < 32; ++i) {
        q[i] = static_cast<uint8_t>(((low[i] >> low_shift) & 0x0f) | (((high[i] >> high_shift) & 3) << 4));
      }
      return;
    }
    default:
      return;
  }
}

// The numbers of one row, for the embedding: `inputs` floats.
inline void dequantize_row(Format format, const uint8_t* row, size_t inputs, float* out) {
  if (format == Format::F32) {
    std::memcpy(out, row, inputs * 4);
    return;
  }
  if (format == Format::F16 || format == Format::BF16) {
    for (size_t i = 0; i < inputs; ++i) {
      const uint16_t bits = read_u16(row + 2 * i);
      out[i] = format == Format::F16 ? half_to_float(bits) : bfloat_to_float(bits);
    }
    return;
  }
  const FormatInfo& f = info(format);
  const size_t per_block = static_cast<size_t>(f.values_per_block) / kGroup;
  for (size_t g = 0; g < inputs / kGroup; ++g) {
    uint8_t q[kGroup];
    unpack_group(format, row, g, q);
    const uint8_t* block = row + g / per_block * static_cast<size_t>(f.bytes_per_block);
    const int sub = static_cast<int>(g % per_block);
    float scale[2], offset;  // an offset of -0 changes nothing, not even a product of -0
    switch (format) {
      case Format::Q4_1:
      case Format::Q5_1:
        scale[0] = scale[1] = half_to_float(read_u16(block));
        offset = half_to_float(read_u16(block + 2));
        break;
      case Format::Q4_K:
      case Format::Q5_K: {
        uint8_t s, m;
        k_scale_min(sub, block + 4, &s, &m);
        scale[0] = scale[1] = half_to_float(read_u16(block)) * s;
        offset = -(half_to_float(read_u16(block + 2)) * m);
        break;
      }
      case Format::Q6_K: {
        const float d = half_to_float(read_u16(block + 208));
        scale[0] = d * static_cast<int8_t>(block[192 + 2 * sub]);
        scale[1] = d * static_cast<int8_t>(block[192 + 2 * sub + 1]);
        offset = -0.0f;
        break;
      }
      default:
        scale[0] = scale[1] = half_to_float(read_u16(block));
        offset = -0.0f;
    }
    const int centre = format == Format::Q4_0 ? 8 : format == Format::Q5_0 ? 16 : format == Format::Q6_K ? 32 : 0;
    for (int i = 0; i < kGroup; ++i) {
      const int value = format == Format::Q8_0 ? static_cast<int8_t>(q[i]) : q[i] - centre;
      out[g * kGroup + static_cast<size_t>(i)] = scale[i / 16] * static_cast<float>(value) + offset;
    }
  }
}

}  // namespace
}  // namespace foredraft
