#include "simd/avx512.h"

#include "kernels/table.h"

namespace foredraft {

const Kernels& avx512_kernels() {
  static const Kernels kernels = make_kernels<Avx512>();
  return kernels;
}

}  // namespace foredraft
