// For vector sets that add products up in 32 bits from the first: nothing overflows, and nothing is to be widened.
#pragma once

#include <cstdint>

namespace foredraft {
namespace {

template <class V>
struct WholeSums {
  static constexpr bool holds(int, int) { return true; }
  static constexpr bool kWidensByMultiplying = false;
  static int32_t start_of(const int8_t* x, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i += 16) sum += V::sum_bytes(x + i);
    return -sum;
  }
};

}  // namespace
}  // namespace foredraft
