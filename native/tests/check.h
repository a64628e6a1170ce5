// What all kernel tests share: a check that counts, random numbers, and the instruction sets of this machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels.h"

namespace foredraft {
namespace testing {

struct Counts {
  long checks = 0, failures = 0;
};
Counts& counts();
void report_failure(const char* file, int line, const char* what, const std::string& detail);

// Names what is being tested in the messages of failed checks.
std::string& current_case();

#define CHECK_SAYING(condition, detail)                                            \
  do {                                                                             \
    ++::foredraft::testing::counts().checks;                                       \
    if (!(condition)) ::foredraft::testing::report_failure(__FILE__, __LINE__, #condition, detail); \
  } while (false)
#define CHECK(condition) CHECK_SAYING(condition, std::string())

template <class Error, class Body>
bool throws(Body body) {
  try {
    body();
  } catch (const Error&) {
    return true;
  }
  return false;
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int range(int low, int high) { return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1)); }
  bool chance(double p) { return std::uniform_real_distribution<double>()(engine_) < p; }
  float normal() { return std::normal_distribution<float>()(engine_); }
  uint64_t bits() { return engine_(); }
  std::vector<float> normals(size_t size, float scale = 1.0f) {
    std::vector<float> values(size);
    for (float& v : values) v = scale * normal();
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

inline bool same_bits(const float* a, const float* b, size_t size) {
  return std::memcmp(a, b, size * sizeof(float)) == 0;
}

// The kernels of every instruction set of this machine.
inline std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all;
  for (const std::string& name : available_kernels()) all.push_back(&select_kernels(name));
  return all;
}

// Bytes of `rows` rows in the format of the file, with scales of a sensible size and random values.
std::vector<uint8_t> random_weight(Format format, size_t rows, size_t inputs, Random& random);

void test_half(const Kernels& kernels);
void test_rowwise(const Kernels& kernels);
void test_quantize(const Kernels& kernels);
void test_matmul(const Kernels& kernels);
void test_attention(const Kernels& kernels);
void test_decoder(const Kernels& kernels);
void test_program_checks();
void test_selection();
void test_thread_pool();
void test_thread_pool_and_forks();

}  // namespace testing
}  // namespace foredraft
