#include "simd/neon.h"

#include "kernels/table.h"

namespace foredraft {

const Kernels& neon_kernels() {
  static const Kernels kernels = make_kernels<Neon>();
  return kernels;
}

}  // namespace foredraft
