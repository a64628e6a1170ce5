// Weight formats, and how their numbers are laid out after repacking.
//
// A matrix of N output channels x K inputs becomes tiles of 16 channels. Integer formats: a tile is a plane of quantised
// values, group after group of 32 inputs, then a plane of scales. Within a group, "quad" j (j < 8) holds inputs 4j..4j+3
// of the 16 channels, byte 4 * channel + i; quads 2j and 2j+1 share 64 bytes as low and high nibbles; bit planes follow
// for the fifth bit (bit j of byte b belongs to byte b of quad j) and for the fifth and sixth (2 bits each, quads 0-3,
// then 4-7). Nothing is requantised: value and scales are those of the file.
// Dense formats: a tile is K rows of 16 channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace foredraft {

enum class Format : int { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

constexpr int kNumFormats = 11;
constexpr int kTile = 16;    // output channels computed together
constexpr int kGroup = 32;   // inputs that share one activation scale
constexpr int kSuper = 256;  // inputs of a K-quant block

struct FormatInfo {
  const char* name;
  int values_per_block;   // as in the file
  int bytes_per_block;    // as in the file
  int group_bytes;        // packed: quantised values of 32 inputs x 16 channels; 0 for dense formats
  int scale_bytes;        // packed: scales per `scale_span` inputs x 16 channels
  int scale_span;         // inputs covered by one packed scale record
  int element_bytes;      // dense formats: bytes of a number; else 0
};

constexpr FormatInfo kFormats[kNumFormats] = {
    {"F32", 1, 4, 0, 0, 1, 4},
    {"F16", 1, 2, 0, 0, 1, 2},
    {"BF16", 1, 2, 0, 0, 1, 2},
    {"Q4_0", 32, 18, 256, 32, 32, 0},
    {"Q4_1", 32, 20, 256, 64, 32, 0},
    {"Q5_0", 32, 22, 320, 32, 32, 0},
    {"Q5_1", 32, 24, 320, 64, 32, 0},
    {"Q8_0", 32, 34, 512, 32, 32, 0},
    {"Q4_K", 256, 144, 256, 64 + 8 * 32, 256, 0},
    {"Q5_K", 256, 176, 320, 64 + 8 * 32, 256, 0},
    {"Q6_K", 256, 210, 384, 32 + 16 * 16, 256, 0},
};

inline const FormatInfo& info(Format format) { return kFormats[static_cast<int>(format)]; }
inline bool is_dense(Format format) { return info(format).element_bytes != 0; }

inline Format format_from_name(const std::string& name) {
  for (int i = 0; i < kNumFormats; ++i) {
    if (name == kFormats[i].name) return static_cast<Format>(i);
  }
  throw std::invalid_argument("unknown weight format " + name);
}

inline size_t row_bytes(Format format, size_t inputs) {
  const FormatInfo& f = info(format);
  return inputs / static_cast<size_t>(f.values_per_block) * static_cast<size_t>(f.bytes_per_block);
}

// Where the plane of scales begins within a packed tile.
inline size_t scales_offset(Format format, size_t inputs) {
  return inputs / kGroup * static_cast<size_t>(info(format).group_bytes);
}

inline size_t tile_bytes(Format format, size_t inputs) {
  const FormatInfo& f = info(format);
  if (f.element_bytes != 0) return inputs * kTile * static_cast<size_t>(f.element_bytes);
  const size_t scales = inputs / static_cast<size_t>(f.scale_span) * static_cast<size_t>(f.scale_bytes);
  return (scales_offset(format, inputs) + scales + 63) / 64 * 64;
}

}  // namespace foredraft
