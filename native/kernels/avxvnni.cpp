#include "simd/avxvnni.h"

#include "kernels/table.h"

namespace foredraft {

const Kernels& avxvnni_kernels() {
  static const Kernels kernels = make_kernels<AvxVnni>();
  return kernels;
}

}  // namespace foredraft
