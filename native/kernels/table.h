// Fills the table of kernels for one vector set.
#pragma once

#include <type_traits>

#include "kernels.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/rowwise.h"

namespace foredraft {
namespace {

template <class V>
Kernels make_kernels() {
  Kernels k{};
  k.name = V::kName;
  k.max_rows = V::kMaxRows;
  k.quantize_row = quantize_row<V>;
  k.matmul[static_cast<int>(Format::F32)] = matmul<V, Format::F32>;
  k.matmul[static_cast<int>(Format::F16)] = matmul<V, Format::F16>;
  k.matmul[static_cast<int>(Format::BF16)] = matmul<V, Format::BF16>;
  k.matmul[static_cast<int>(Format::Q4_0)] = matmul<V, Format::Q4_0>;
  k.matmul[static_cast<int>(Format::Q4_1)] = matmul<V, Format::Q4_1>;
  k.matmul[static_cast<int>(Format::Q5_0)] = matmul<V, Format::Q5_0>;
  k.matmul[static_cast<int>(Format::Q5_1)] = matmul<V, Format::Q5_1>;
  k.matmul[static_cast<int>(Format::Q8_0)] = matmul<V, Format::Q8_0>;
  k.matmul[static_cast<int>(Format::Q4_K)] = matmul<V, Format::Q4_K>;
  k.matmul[static_cast<int>(Format::Q5_K)] = matmul<V, Format::Q5_K>;
  k.matmul[static_cast<int>(Format::Q6_K)] = matmul<V, Format::Q6_K>;
  k.rms_norm = rms_norm<V>;
  k.gated = gated<V>;
  k.rope = rope<V>;
  k.attention = attention<V>;
  k.store_key = store_key<V>;
  k.store_value = store_value<V>;
  k.argmax = argmax<V>;
  k.max = max_of<V>;
  k.sum_exp = sum_exp<V>;
  return k;
}

}  // namespace
}  // namespace foredraft
