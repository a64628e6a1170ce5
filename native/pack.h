// Repacking of a weight matrix from the order of the file into tiles (see format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "format.h"
#include "thread_pool.h"
#include "weight_memory.h"

namespace foredraft {

// A packed matrix, aligned to 64 bytes. Channels beyond `outputs` in the last tile are zero.
class Weight {
 public:
  // data: `outputs` rows of row_bytes(format, inputs) bytes each, read while the constructor runs only.
  // Throws std::invalid_argument where `inputs` is not a whole number of blocks or groups of 32 (integer formats).
  // memory: shared with other weights; null: the matrix has memory of its own.
  Weight(Format format, size_t outputs, size_t inputs, const uint8_t* data, ThreadPool& pool,
         std::shared_ptr<WeightMemory> memory = nullptr);
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  Format format() const { return format_; }
  size_t outputs() const { return outputs_; }
  size_t inputs() const { return inputs_; }
  size_t num_tiles() const { return (outputs_ + kTile - 1) / kTile; }
  size_t num_bytes() const { return num_tiles() * tile_bytes_; }
  size_t tile_stride() const { return tile_bytes_; }
  const uint8_t* tile(size_t index) const { return data_ + index * tile_bytes_; }

 private:
  Format format_;
  size_t outputs_, inputs_, tile_bytes_;
  std::shared_ptr<WeightMemory> memory_;
  uint8_t* data_;
};

}  // namespace foredraft
