// Sixteen-lane vectors on AVX-512 with VNNI. Every kernel is written once against this set of operations; the other
// instruction sets supply the same names. Included only by the translation unit compiled for this instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "simd/whole_sums.h"

namespace foredraft {
namespace {

struct Avx512 : WholeSums<Avx512> {
  static constexpr const char* kName = "avx512";
  static constexpr int kMaxRows = 8;  // rows a matmul handles at once: two accumulators each, of 32 registers
  using F32 = __m512;
  using I32 = __m512i;
  using Bytes = __m512i;  // 16 channels x 4 consecutive inner positions

  static F32 zero() { return _mm512_setzero_ps(); }
  static F32 load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
  static F32 broadcast(float v) { return _mm512_set1_ps(v); }
  static F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
  static F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
  static F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
  static F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
  static F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
  static F32 abs(F32 a) { return _mm512_abs_ps(a); }
  static F32 round(F32 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F32 from_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32 from_bfloat(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void to_half(uint16_t* p, F32 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static F32 from_u8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static F32 from_i8(const int8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void to_i8(int8_t* p, F32 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  static int sum_bytes(const int8_t* p) {  // of sixteen
    const __m128i shifted = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }
  // The largest magnitude of both, where NaN is the largest of all.
  static float largest_magnitude(F32 a, F32 b) {
    const __m512i bits = _mm512_max_epu32(_mm512_castps_si512(abs(a)), _mm512_castps_si512(abs(b)));
    const uint32_t largest = _mm512_reduce_max_epu32(bits);
    float result;
    std::memcpy(&result, &largest, 4);
    return result;
  }
  // 2^v for integral v in the range of a normal float.
  static F32 exp2_integral(F32 v) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(127)), 23));
  }
  // Keeps the lanes whose bit in `keep` is set, and puts `other` into the rest.
  static F32 select(uint32_t keep, F32 v, F32 other) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(keep), other, v);
  }
  // v where test > bound, elsewhere 0.
  static F32 keep_if_greater(F32 v, F32 test, F32 bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(test, bound, _CMP_GT_OQ), v);
  }

  static I32 zero_i32() { return _mm512_setzero_si512(); }
  static I32 add(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
  static F32 to_float(I32 v) { return _mm512_cvtepi32_ps(v); }
  // Sums of products, on the way to 32 bits: `holds` says whether they can take so many dots with weights of such a
  // magnitude.
  using Sums = I32;
  static I32 widen(Sums v) { return v; }
  // What start_of() gave, for weights that count from 2^kShift. start_of: of 16 or 32 bytes of x.
  template <int kShift>
  static Sums start(const int32_t* of) {
    return _mm512_slli_epi32(_mm512_set1_epi32(*of), kShift);
  }
  // acc[c] += sum over i < 4 of w[c][i] * x[i], w unsigned and x signed.
  static Sums dot(Sums acc, Bytes w, const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(four));
  }
  static constexpr int kSignedOffset = 128;
  // Signed weights: made unsigned by adding kSignedOffset, which the caller takes out again through the row's sum.
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) {
    return dot(acc, _mm512_xor_si512(w, _mm512_set1_epi8(static_cast<char>(0x80))), x);
  }

  static Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static Bytes low_nibbles(Bytes v) { return _mm512_and_si512(v, _mm512_set1_epi8(0x0f)); }
  static Bytes high_nibbles(Bytes v) {
    return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(0x0f));
  }
  // Bits shifted left by kLeft (right when negative), masked to kMask.
  template <int kLeft, int kMask>
  static Bytes take_bits(Bytes bits) {
    return _mm512_and_si512(shifted<kLeft>(bits), _mm512_set1_epi8(kMask));
  }
  // base | take_bits(bits), where base has no bit of the mask set.
  template <int kLeft, int kMask>
  static Bytes insert_bits(Bytes base, Bytes bits) {
    return _mm512_ternarylogic_epi32(base, shifted<kLeft>(bits), _mm512_set1_epi8(kMask), 0xf8);
  }
  // Past the caches that the rest needs: a pass reads a weight once. Written as assembly, since GCC takes a function that
  // only prefetches for one without effect, and drops its calls.
  static void prefetch(const uint8_t* p) { asm volatile("prefetchnta %0" : : "m"(*p)); }

 private:
  template <int kLeft>
  static Bytes shifted(Bytes bits) {
    if constexpr (kLeft > 0) return _mm512_slli_epi16(bits, kLeft);
    if constexpr (kLeft < 0) return _mm512_srli_epi16(bits, -kLeft);
    return bits;
  }
};

}  // namespace
}  // namespace foredraft
