// Weight formats, and how their numbers are laid out after repacking.
//
// A matrix of N output channels x K inputs becomes tiles of 16 channels. Integer formats: a tile is a sequence of
// records, each with the scales of some groups of 32 inputs and then the quantised values of those groups, so that a
// tile is read from front to back. Within a group, "quad" j (j < 8) holds inputs 4j..4j+3 of the 16 channels, byte
// 4 * channel + i. A group is some vectors of 64 bytes, whose byte b holds bits of byte b of quads:
//   4 bits: vector j has quad 2j in its lower and quad 2j + 1 in its upper nibble.
//   5 bits: vectors 0-4 have quads 0-4 in their lower five bits. The upper three bits of vectors 0, 2 and 4 are bits
//     2-4 of quads 5, 6 and 7; bits 6-7 of vectors 1 and 3 are bits 0-1 of quads 5 and 6; bit 5 of vectors 3 and 1 are
//     bits 0 and 1 of quad 7.
//   6 bits: vectors 0-2 have quads 0-2 in their lower six bits, and in the upper two bits 0-1, 2-3 and 4-5 of quad 3;
//     vectors 3-5 likewise quads 4-7.
//   8 bits: vector j is quad j.
// Scales and vectors begin at multiples of 64 bytes. Nothing is requantised: values and scales are those of the file.
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
  int record_groups;      // packed: groups of one record
  int scale_bytes;        // packed: scales of one record
  int element_bytes;      // dense formats: bytes of a number; else 0
};

constexpr FormatInfo kFormats[kNumFormats] = {
    {"F32", 1, 4, 0, 1, 0, 4},
    {"F16", 1, 2, 0, 1, 0, 2},
    {"BF16", 1, 2, 0, 1, 0, 2},
    {"Q4_0", 32, 18, 256, 2, 64, 0},
    {"Q4_1", 32, 20, 256, 2, 128, 0},
    {"Q5_0", 32, 22, 320, 2, 64, 0},
    {"Q5_1", 32, 24, 320, 2, 128, 0},
    {"Q8_0", 32, 34, 512, 2, 64, 0},
    {"Q4_K", 256, 144, 256, 8, 320, 0},
    {"Q5_K", 256, 176, 320, 8, 320, 0},
    {"Q6_K", 256, 210, 384, 8, 320, 0},
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

constexpr size_t record_bytes(const FormatInfo& f) {
  return static_cast<size_t>(f.scale_bytes + f.record_groups * f.group_bytes);
}

inline size_t tile_bytes(Format format, size_t inputs) {
  const FormatInfo& f = info(format);
  if (f.element_bytes != 0) return inputs * kTile * static_cast<size_t>(f.element_bytes);
  const size_t groups = inputs / kGroup, per_record = static_cast<size_t>(f.record_groups);
  return (groups + per_record - 1) / per_record * record_bytes(f);
}

}  // namespace foredraft
