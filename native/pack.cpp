#include "pack.h"

#include <cstring>
#include <stdexcept>

#include "blocks.h"

namespace foredraft {
namespace {

// Bits of each of four bytes: those of `mask`, which fit it after a shift to the right, moved up to bit `to`.
uint32_t move_bits(uint32_t four, int right, uint32_t mask, int to) {
  return ((four >> right) & (mask * 0x01010101u)) << to;
}

// One channel's 32 values into its places within a group.
void pack_group(Format format, const uint8_t* q, int channel, uint8_t* group) {
  uint32_t w[8];
  std::memcpy(w, q, kGroup);
  const auto put = [&](int vector, uint32_t four) { std::memcpy(group + 64 * vector + 4 * channel, &four, 4); };
  switch (info(format).group_bytes) {
    case 256:
      for (int i = 0; i < 4; ++i) put(i, w[2 * i] | w[2 * i + 1] << 4);
      return;
    case 320:
      put(0, w[0] | move_bits(w[5], 2, 7, 5));
      put(1, w[1] | move_bits(w[5], 0, 3, 6) | move_bits(w[7], 1, 1, 5));
      put(2, w[2] | move_bits(w[6], 2, 7, 5));
      put(3, w[3] | move_bits(w[6], 0, 3, 6) | move_bits(w[7], 0, 1, 5));
      put(4, w[4] | move_bits(w[7], 2, 7, 5));
      return;
    case 384:
      for (int i = 0; i < 6; ++i) put(i, w[i + i / 3] | move_bits(w[i / 3 * 4 + 3], 2 * (i % 3), 3, 6));
      return;
    default:
      for (int i = 0; i < 8; ++i) put(i, w[i]);
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
