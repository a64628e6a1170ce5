#include "pack.h"

#include <cstring>
#include <stdexcept>

#include "blocks.h"

namespace foredraft {
namespace {

uint32_t read_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

void or_u32(uint8_t* p, uint32_t bits) {
  const uint32_t v = read_u32(p) | bits;
  std::memcpy(p, &v, 4);
}

// One channel's 32 values into its places within the group's planes, which are zero before the first channel.
void pack_group(Format format, const uint8_t* q, int channel, uint8_t* group) {
  for (int quad = 0; quad < 8; ++quad) {
    const uint32_t four = read_u32(q + 4 * quad);
    if (format == Format::Q8_0) {
      std::memcpy(group + 64 * quad + 4 * channel, &four, 4);
      continue;
    }
    or_u32(group + 64 * (quad / 2) + 4 * channel, (four & 0x0f0f0f0fu) << (4 * (quad & 1)));
    const int bits = info(format).group_bytes;
    if (bits == 320) or_u32(group + 256 + 4 * channel, ((four >> 4) & 0x01010101u) << quad);
    if (bits == 384) {
      or_u32(group + 256 + 64 * (quad / 4) + 4 * channel, ((four >> 4) & 0x03030303u) << (2 * (quad % 4)));
    }
  }
}

// The scales of one block of one channel.
void pack_scales(Format format, const uint8_t* block, int channel, uint8_t* record) {
  uint8_t* const first = record + 2 * channel;
  switch (format) {
    case Format::Q4_0:
    case Format::Q5_0:
    case Format::Q8_0:
      std::memcpy(first, block, 2);
      return;
    case Format::Q4_1:
    case Format::Q5_1:
      std::memcpy(first, block, 2);
      std::memcpy(first + 32, block + 2, 2);
      return;
    case Format::Q4_K:
    case Format::Q5_K:
      std::memcpy(first, block, 2);
      std::memcpy(first + 32, block + 2, 2);
      for (int sub = 0; sub < 8; ++sub) {
        uint8_t* const pair = record + 64 + 32 * sub + channel;
        k_scale_min(sub, block + 4, pair, pair + 16);
      }
      return;
    case Format::Q6_K:
      std::memcpy(first, block + 208, 2);
      for (int sub = 0; sub < 16; ++sub) record[32 + 16 * sub + channel] = block[192 + sub];
      return;
    default:
      return;
  }
}

void pack_integer_tile(Format format, size_t inputs, const uint8_t* rows, int channels, uint8_t* tile) {
  const FormatInfo& f = info(format);
  const size_t stride = row_bytes(format, inputs), per_record = static_cast<size_t>(f.record_groups);
  const size_t group_bytes = static_cast<size_t>(f.group_bytes), scale_bytes = static_cast<size_t>(f.scale_bytes);
  const size_t block_groups = static_cast<size_t>(f.values_per_block) / kGroup;
  for (int c = 0; c < channels; ++c) {
    const uint8_t* const row = rows + static_cast<size_t>(c) * stride;
    for (size_t g = 0; g < inputs / kGroup; ++g) {
      uint8_t* const record = tile + g / per_record * record_bytes(f);
      uint8_t q[kGroup];
      unpack_group(format, row, g, q);
      pack_group(format, q, c, record + scale_bytes + g % per_record * group_bytes);
      if (g % block_groups == 0) {  // blocks of 32 share a record's scales, a block of 256 has them for itself
        const uint8_t* const block = row + g / block_groups * static_cast<size_t>(f.bytes_per_block);
        pack_scales(format, block, c, record + g % per_record * (scale_bytes / per_record));
      }
    }
  }
}

void pack_dense_tile(size_t element, size_t inputs, const uint8_t* rows, int channels, uint8_t* tile) {
  for (int c = 0; c < channels; ++c) {
    const uint8_t* const row = rows + static_cast<size_t>(c) * inputs * element;
    for (size_t k = 0; k < inputs; ++k) {
      std::memcpy(tile + (k * kTile + static_cast<size_t>(c)) * element, row + k * element, element);
    }
  }
}

}  // namespace

Weight::Weight(Format format, size_t outputs, size_t inputs, const uint8_t* data, ThreadPool& pool,
               std::shared_ptr<WeightMemory> memory)
    : format_(format), outputs_(outputs), inputs_(inputs), tile_bytes_(tile_bytes(format, inputs)),
      memory_(memory ? std::move(memory) : std::make_shared<WeightMemory>()), data_(nullptr) {
  if (outputs == 0 || inputs == 0) throw std::invalid_argument("a weight matrix cannot be empty");
  const size_t block = is_dense(format) ? 1 : static_cast<size_t>(info(format).values_per_block);
  if (inputs % block != 0) throw std::invalid_argument("the inputs of a weight must fill whole blocks");
  data_ = memory_->allocate(num_bytes());
  pool.parallel_for(num_tiles(), [&](size_t t, int) {
    uint8_t* const out = data_ + t * tile_bytes_;
    std::memset(out, 0, tile_bytes_);
    const uint8_t* const rows = data + t * kTile * row_bytes(format_, inputs_);
    const size_t left = outputs_ - t * kTile;
    const int channels = static_cast<int>(left < kTile ? left : kTile);
    if (is_dense(format_)) {
      pack_dense_tile(static_cast<size_t>(info(format_).element_bytes), inputs_, rows, channels, out);
    } else {
      pack_integer_tile(format_, inputs_, rows, channels, out);
    }
  });
}

}  // namespace foredraft
