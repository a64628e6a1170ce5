// AVX2 with AVX-VNNI: the sixteen-lane vectors of AVX2, whose products of bytes are one instruction. Included only by
// the translation unit compiled for this instruction set.
#pragma once

#include "simd/avx2.h"
#include "simd/whole_sums.h"

namespace foredraft {
namespace {

struct AvxVnni : Avx2 {
  static constexpr const char* kName = "avxvnni";

  using Sums = I32;
  static I32 widen(Sums v) { return v; }
  static constexpr bool holds(int, int) { return true; }
  static constexpr bool kWidensByMultiplying = false;
  static int32_t start_of(const int8_t* x, int count) { return WholeSums<Avx2>::start_of(x, count); }
  template <int kShift>
  static Sums start(const int32_t* of) {
    const __m256i both = _mm256_slli_epi32(_mm256_set1_epi32(*of), kShift);
    return {both, both};
  }
  static Sums dot(Sums acc, Bytes w, const int8_t* x) {
    const __m256i four = broadcast_four(x);
    return {_mm256_dpbusd_avx_epi32(acc.low, w.low, four), _mm256_dpbusd_avx_epi32(acc.high, w.high, four)};
  }
  static constexpr int kSignedOffset = 128;
  // Signed weights: made unsigned by adding kSignedOffset, which the caller takes out again through the row's sum.
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
    return dot(acc, {_mm256_xor_si256(w.low, flip), _mm256_xor_si256(w.high, flip)}, x);
  }
};

}  // namespace
}  // namespace foredraft
