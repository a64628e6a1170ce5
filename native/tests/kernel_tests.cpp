// Tests of the kernels, without a framework: each failed check prints a line, and the exit status says whether any did.
#include "tests/check.h"

#include <chrono>

#include "half.h"

namespace foredraft {
namespace testing {

Counts& counts() {
  static Counts instance;
  return instance;
}

std::string& current_case() {
  static std::string name;
  return name;
}

void report_failure(const char* file, int line, const char* what, const std::string& detail) {
  if (++counts().failures > 50) return;  // enough to see what is wrong
  std::fprintf(stderr, "%s:%d: [%s] failed: %s %s\n", file, line, current_case().c_str(), what, detail.c_str());
}

std::vector<uint8_t> random_weight(Format format, size_t rows, size_t inputs, Random& random) {
  const FormatInfo& f = info(format);
  std::vector<uint8_t> bytes(rows * row_bytes(format, inputs));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.bits());
  const auto put_half = [](uint8_t* p, float value) {
    const uint16_t bits = float_to_half(value);
    std::memcpy(p, &bits, 2);
  };
  const size_t block = static_cast<size_t>(f.bytes_per_block);
  for (size_t at = 0; at < bytes.size(); at += block) {
    uint8_t* const p = bytes.data() + at;
    const float scale = 0.02f * random.normal();
    switch (format) {
      case Format::F32:
        std::memcpy(p, &scale, 4);
        break;
      case Format::BF16: {
        const uint16_t bits = static_cast<uint16_t>(float_to_bits(scale) >> 16);
        std::memcpy(p, &bits, 2);
        break;
      }
      case Format::Q6_K:
        put_half(p + 208, 0.01f * scale);
        break;
      case Format::Q4_1:
      case Format::Q5_1:
        put_half(p + 2, 0.1f * random.normal());
        put_half(p, scale);
        break;
      case Format::Q4_K:
      case Format::Q5_K:
        put_half(p + 2, 0.05f * scale);
        put_half(p, 0.05f * scale);
        break;
      default:
        put_half(p, scale);
    }
  }
  return bytes;
}

}  // namespace testing
}  // namespace foredraft

namespace {

using namespace foredraft;
using namespace foredraft::testing;

// Neither the thread sanitizer nor qemu's user mode can follow threads that a forked child starts.
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

template <class Test>
void timed(const std::string& name, Test test) {
  const auto start = std::chrono::steady_clock::now();
  const long before = counts().checks;
  current_case() = name;
  test();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-24s %9ld checks  %6.2f s\n", name.c_str(), counts().checks - before, seconds);
}

}  // namespace

// kernel_tests [KERNELS [emulated]]. KERNELS: what the processor must have, no more and no less, best first, such as
// "neon,portable". emulated: leaves out what qemu's user mode cannot do, and tests the best kernels only, to save time.
int main(int argc, char** argv) {
  if (argc > 1) {
    current_case() = "arguments";
    std::string names;
    for (const std::string& name : available_kernels()) names += (names.empty() ? "" : ",") + name;
    CHECK_SAYING(names == argv[1], names + " instead of " + argv[1]);
  }
  const bool emulated = argc > 2 && std::string(argv[2]) == "emulated";
  timed("selection", test_selection);
  timed("thread pool", test_thread_pool);
  if (!kThreadSanitizer && !emulated) timed("thread pool and forks", test_thread_pool_and_forks);
  timed("program checks", test_program_checks);
  auto tested = all_kernels();
  if (emulated) tested.resize(1);
  for (const Kernels* kernels : tested) {
    const std::string name = kernels->name;
    timed(name + " half", [&] { test_half(*kernels); });
    timed(name + " rowwise", [&] { test_rowwise(*kernels); });
    timed(name + " quantize", [&] { test_quantize(*kernels); });
    timed(name + " matmul", [&] { test_matmul(*kernels); });
    timed(name + " attention", [&] { test_attention(*kernels); });
    timed(name + " decoder", [&] { test_decoder(*kernels); });
  }
  std::printf("%ld checks, %ld failures\n", counts().checks, counts().failures);
  return counts().failures == 0 ? 0 : 1;
}
