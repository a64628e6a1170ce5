#include "simd/avx2.h"

#include "kernels/table.h"

namespace foredraft {

const Kernels& avx2_kernels() {
  static const Kernels kernels = make_kernels<Avx2>();
  return kernels;
}

}  // namespace foredraft
