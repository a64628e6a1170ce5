#include <stdexcept>

#include "kernels.h"

#if defined(FOREDRAFT_X86)
#include <cpuid.h>
#endif
#if defined(FOREDRAFT_ARM) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace foredraft {
namespace {

struct Choice {
  const char* name;
  bool (*usable)();
  const Kernels& (*kernels)();
};

#if defined(FOREDRAFT_X86)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;  // older compilers do not know the name "f16c"
  const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c;
}

bool has_avxvnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAvxVnni = 1u << 4;  // in EAX of leaf 7, sub-leaf 1; older compilers have no name for it
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}
#endif

#if defined(FOREDRAFT_ARM)
bool has_dot_products() {
#if defined(__APPLE__)
  return true;  // all of their processors that run a desktop
#elif defined(__linux__)
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP; older headers do not know the name
  return (getauxval(AT_HWCAP) & kDotProducts) != 0;
#else
  return false;
#endif
}
#endif

constexpr Choice kChoices[] = {
#if defined(FOREDRAFT_X86)
    {"avx512", has_avx512, avx512_kernels},
    {"avxvnni", has_avxvnni, avxvnni_kernels},
    {"avx2", has_avx2, avx2_kernels},
#endif
#if defined(FOREDRAFT_ARM)
    {"neon", has_dot_products, neon_kernels},
#endif
    {"portable", [] { return true; }, portable_kernels},
};

}  // namespace

std::vector<std::string> available_kernels() {
  std::vector<std::string> names;
  for (const Choice& choice : kChoices) {
    if (choice.usable()) names.push_back(choice.name);
  }
  return names;
}

const Kernels& select_kernels(const std::string& isa) {
  std::string problem = "unknown instruction set '" + isa + "'";
  for (const Choice& choice : kChoices) {
    if (!isa.empty() && isa != choice.name) continue;
    if (choice.usable()) return choice.kernels();
    problem = "this processor lacks the instruction set '" + isa + "'";
  }
  std::string names;
  for (const std::string& name : available_kernels()) names += (names.empty() ? "" : ", ") + name;
  throw std::invalid_argument(problem + "; choose from: " + names);
}

}  // namespace foredraft
