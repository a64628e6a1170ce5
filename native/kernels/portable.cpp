#include "simd/portable.h"

#include "kernels/table.h"

namespace foredraft {

const Kernels& portable_kernels() {
  static const Kernels kernels = make_kernels<Portable>();
  return kernels;
}

}  // namespace foredraft
