#include <stdexcept>
#include <string>

#include "kernels.h"

namespace foredraft {
namespace {

#if defined(FOREDRAFT_AVX512)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

const Kernels& select_kernels(const char* isa) {
  const std::string wanted = isa ? isa : "";
#if defined(FOREDRAFT_AVX512)
  if (has_avx512() && (wanted.empty() || wanted == "avx512")) return avx512_kernels();
  if (wanted == "avx512") throw std::invalid_argument("this processor lacks AVX-512 VNNI; choose 'portable'");
#endif
  if (wanted.empty() || wanted == "portable") return portable_kernels();
  throw std::invalid_argument("unknown instruction set '" + wanted + "'; this build has: portable"
#if defined(FOREDRAFT_AVX512)
                              ", avx512"
#endif
  );
}

}  // namespace foredraft
