// Activations as the matmuls of quantised weights read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace foredraft {

// Rows as bytes with scales, sums and starts, in the layout of Rows. Precise rows are two byte rows each, the second for what
// the first leaves over; their products are to be added. Memory is kept from use to use.
class Activations {
 public:
  explicit Activations(bool precise) : parts_(precise ? 2 : 1) {}

  // Makes room for `num_rows` rows. Every group must then be filled. Throws std::bad_alloc.
  void resize(const Kernels& kernels, size_t num_rows, size_t inputs);
  // Fills the groups from `begin` to `end` of all rows; several threads may fill others at once. x: [num_rows, inputs].
  void fill(const Kernels& kernels, const float* x, size_t begin, size_t end);

  size_t parts() const { return parts_; }
  // Most rows of one call of a matmul: a whole number of passes.
  size_t rows_per_call() const { return kMaxRowsPerCall / rows_per_pass_ * rows_per_pass_ / parts_; }
  // All rows from `row` on, a multiple of rows_per_call().
  Rows from(size_t row) const;

 private:
  void quantize(const Kernels& kernels, size_t byte_row, const float* x, size_t begin, size_t end);
  size_t rows_in_pass(size_t byte_row) const;
  size_t at(size_t byte_row, size_t group) const;

  size_t parts_;
  size_t num_byte_rows_ = 0, inputs_ = 0, rows_per_pass_ = 1;
  std::vector<int8_t> bytes_;
  std::vector<float> scales_, sums32_, rests_;
  std::vector<int32_t> starts32_, starts16_;
};

// Rows that one pass over the weights should take, of `num_rows` in all: equal shares, none above the kernels' most.
size_t rows_per_pass(const Kernels& kernels, size_t num_rows);

}  // namespace foredraft
