#include "activations.h"

#include <algorithm>

namespace foredraft {

size_t rows_per_pass(const Kernels& kernels, size_t num_rows) {
  const size_t passes = (num_rows + kernels.max_rows - 1) / kernels.max_rows;
  return passes == 0 ? 1 : (num_rows + passes - 1) / passes;
}

void Activations::resize(const Kernels& kernels, size_t num_rows, size_t inputs) {
  const size_t groups = inputs / kGroup;
  num_byte_rows_ = num_rows * parts_;
  inputs_ = inputs;
  rows_per_pass_ = rows_per_pass(kernels, num_byte_rows_);
  rows_per_pass_ += rows_per_pass_ % parts_;  // both parts of a row belong to one pass
  bytes_.resize(num_byte_rows_ * inputs);
  scales_.resize(num_byte_rows_ * groups);
  sums32_.resize(num_byte_rows_ * groups);
  starts32_.resize(num_byte_rows_ * groups);
  starts16_.resize(num_byte_rows_ * groups * 2);
  rests_.resize(parts_ > 1 ? num_rows * inputs : 0);
}

size_t Activations::rows_in_pass(size_t byte_row) const {
  const size_t first = byte_row / rows_per_pass_ * rows_per_pass_;
  return std::min(rows_per_pass_, num_byte_rows_ - first);
}

// Index of a row's scale of a group; the group's bytes begin at 32 times this.
size_t Activations::at(size_t byte_row, size_t group) const {
  const size_t first = byte_row / rows_per_pass_ * rows_per_pass_;
  return first * (inputs_ / kGroup) + group * rows_in_pass(byte_row) + byte_row - first;
}

void Activations::quantize(const Kernels& kernels, size_t byte_row, const float* x, size_t begin, size_t end) {
  const size_t first = byte_row / rows_per_pass_ * rows_per_pass_, rows = rows_in_pass(byte_row);
  const size_t group = at(byte_row, begin);
  const size_t half_group = 2 * first * (inputs_ / kGroup) + 2 * begin * rows + byte_row - first;
  kernels.quantize_row(x + begin * kGroup, (end - begin) * kGroup, rows, bytes_.data() + kGroup * group,
                       scales_.data() + group, sums32_.data() + group, starts32_.data() + group,
                       starts16_.data() + half_group);
}

void Activations::fill(const Kernels& kernels, const float* x, size_t begin, size_t end) {
  for (size_t row = 0; row < num_byte_rows_ / parts_; ++row, x += inputs_) {
    quantize(kernels, row * parts_, x, begin, end);
    if (parts_ == 1) continue;
    float* const rest = rests_.data() + row * inputs_;
    for (size_t g = begin; g < end; ++g) {
      const size_t index = at(row * parts_, g);
      for (size_t i = 0; i < kGroup; ++i) {
        rest[g * kGroup + i] = x[g * kGroup + i] - scales_[index] * static_cast<float>(bytes_[kGroup * index + i]);
      }
    }
    quantize(kernels, row * parts_ + 1, rest, begin, end);
  }
}

Rows Activations::from(size_t row) const {
  const size_t index = row * parts_ * (inputs_ / kGroup);
  Rows rows{};
  rows.bytes = bytes_.data() + kGroup * index;
  rows.scales = scales_.data() + index;
  rows.sums32 = sums32_.data() + index;
  rows.starts32 = starts32_.data() + index;
  rows.starts16 = starts16_.data() + 2 * index;
  rows.inputs = inputs_;
  rows.rows_per_pass = rows_per_pass_;
  return rows;
}

}  // namespace foredraft
