// Sixteen-lane vectors on AVX2 with FMA and F16C: two registers of eight lanes. Same names as simd/avx512.h. Included
// only by the translation unit compiled for this instruction set.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace foredraft {
namespace {

struct Avx2 {
  static constexpr const char* kName = "avx2";
  static constexpr int kMaxRows = 6;  // measured: reading quads once for six rows pays for totals kept in memory
  struct F32 {
    __m256 low, high;
  };
  struct I32 {
    __m256i low, high;
  };
  using Bytes = I32;  // 16 channels x 4 consecutive inner positions

  static F32 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F32 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, F32 v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static F32 broadcast(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static F32 add(F32 a, F32 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static F32 sub(F32 a, F32 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
  static F32 mul(F32 a, F32 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static F32 div(F32 a, F32 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
  static F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
  static F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
  static F32 fma(F32 a, F32 b, F32 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static F32 abs(F32 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
  }
  static F32 round(F32 a) {
    return {_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static F32 from_half(const uint16_t* p) { return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))}; }
  static F32 from_bfloat(const uint16_t* p) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p + 8)), 16))};
  }
  static void to_half(uint16_t* p, F32 v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.high, _MM_FROUND_TO_NEAREST_INT));
  }
  static F32 from_u8(const uint8_t* p) {
    return to_float({_mm256_cvtepu8_epi32(load_64(p)), _mm256_cvtepu8_epi32(load_64(p + 8))});
  }
  static F32 from_i8(const int8_t* p) {
    return to_float({_mm256_cvtepi8_epi32(load_64(p)), _mm256_cvtepi8_epi32(load_64(p + 8))});
  }
  static void to_i8(int8_t* p, F32 v) {
    const __m256i low = _mm256_cvtps_epi32(v.low), high = _mm256_cvtps_epi32(v.high);
    const __m128i first = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i second = _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(first, second));
  }
  static int sum_bytes(const int8_t* p) {  // of sixteen
    const __m128i shifted = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), _mm_set1_epi8(-128));
    const __m128i sums = _mm_sad_epu8(shifted, _mm_setzero_si128());
    return _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4) - 16 * 128;
  }
  // The largest magnitude of both, where NaN is the largest of all.
  static float largest_magnitude(F32 a, F32 b) {
    const F32 first = abs(a), second = abs(b);
    const __m256i bits = _mm256_max_epu32(_mm256_max_epu32(_mm256_castps_si256(first.low), _mm256_castps_si256(first.high)),
                                          _mm256_max_epu32(_mm256_castps_si256(second.low), _mm256_castps_si256(second.high)));
    __m128i best = _mm_max_epu32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0x4e));
    best = _mm_max_epu32(best, _mm_shuffle_epi32(best, 0xb1));
    const int largest = _mm_cvtsi128_si32(best);
    float result;
    std::memcpy(&result, &largest, 4);
    return result;
  }
  // 2^v for integral v in the range of a normal float.
  static F32 exp2_integral(F32 v) { return {exp2_integral(v.low), exp2_integral(v.high)}; }
  // Keeps the lanes whose bit in `keep` is set, and puts `other` into the rest.
  static F32 select(uint32_t keep, F32 v, F32 other) {
    return {_mm256_blendv_ps(other.low, v.low, lanes_of(keep)),
            _mm256_blendv_ps(other.high, v.high, lanes_of(keep >> 8))};
  }
  // v where test > bound, elsewhere 0.
  static F32 keep_if_greater(F32 v, F32 test, F32 bound) {
    return {_mm256_and_ps(v.low, _mm256_cmp_ps(test.low, bound.low, _CMP_GT_OQ)),
            _mm256_and_ps(v.high, _mm256_cmp_ps(test.high, bound.high, _CMP_GT_OQ))};
  }

  static I32 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static I32 add(I32 a, I32 b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
  static F32 to_float(I32 v) { return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)}; }
  // Sums of products, two lanes of 16 bits a channel: of the first two bytes of each quad, and of the others.
  struct Sums {
    __m256i low, high;
  };
  static constexpr bool holds(int magnitude, int dots) { return dots * 2 * magnitude * 127 <= 32767; }
  static int32_t start_of(const int8_t* x, int count) {
    __m128i sums = _mm_setzero_si128();
    for (int i = 0; i < count; i += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
      sums = _mm_sub_epi16(sums, _mm_maddubs_epi16(_mm_set1_epi8(1), bytes));
    }
    sums = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xb1)));
  }
  template <int kShift>
  static Sums start(const int32_t* of) {
    const __m256i both = _mm256_slli_epi16(_mm256_set1_epi32(*of), kShift);
    return {both, both};
  }
  // acc[c] += sum over i < 4 of w[c][i] * x[i], w unsigned and x signed. Two products must fit 16 bits: weights have at
  // most 6 bits here, and 2 * 63 * 127 does. Sums may pass the ends of their range and come back.
  static Sums dot(Sums acc, Bytes w, const int8_t* x) {
    const __m256i four = broadcast_four(x);
    return {in_turn(_mm256_add_epi16(acc.low, _mm256_maddubs_epi16(w.low, four))),
            in_turn(_mm256_add_epi16(acc.high, _mm256_maddubs_epi16(w.high, four)))};
  }
  static I32 widen(I32 v) { return v; }
  static I32 widen(Sums v) { return {widen(v.low), widen(v.high)}; }
  // Sums times a whole number for each channel, 32 bits wide, at the price of widening them.
  static constexpr bool kWidensByMultiplying = true;
  struct Multipliers {
    __m256i low, high;
  };
  static Multipliers multipliers(const uint8_t* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(v, v)), _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(v, v))};
  }
  static Multipliers multipliers(const int8_t* p) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(v, v)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(v, v))};
  }
  static I32 widen(Sums v, const Multipliers& m) {
    return {_mm256_madd_epi16(v.low, m.low), _mm256_madd_epi16(v.high, m.high)};
  }
  static constexpr int kSignedOffset = 0;
  // Signed weights: their sign moves over to x. No sum of two products overflows, since |w| <= 128 and |x| <= 127.
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) {
    const __m256i four = broadcast_four(x);
    return {dot_signed(acc.low, w.low, four), dot_signed(acc.high, w.high, four)};
  }

  static Bytes load_bytes(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  static Bytes low_nibbles(Bytes v) {
    const __m256i mask = _mm256_set1_epi8(0x0f);
    return {_mm256_and_si256(v.low, mask), _mm256_and_si256(v.high, mask)};
  }
  static Bytes high_nibbles(Bytes v) {
    return low_nibbles({_mm256_srli_epi16(v.low, 4), _mm256_srli_epi16(v.high, 4)});
  }
  // Bits shifted left by kLeft (right when negative), masked to kMask.
  template <int kLeft, int kMask>
  static Bytes take_bits(Bytes bits) {
    return {take_bits<kLeft, kMask>(bits.low), take_bits<kLeft, kMask>(bits.high)};
  }
  // base | take_bits(bits), where base has no bit of the mask set.
  template <int kLeft, int kMask>
  static Bytes insert_bits(Bytes base, Bytes bits) {
    return {_mm256_or_si256(base.low, take_bits<kLeft, kMask>(bits.low)),
            _mm256_or_si256(base.high, take_bits<kLeft, kMask>(bits.high))};
  }
  // Past the caches that the rest needs: a pass reads a weight once. Written as assembly, since GCC takes a function that
  // only prefetches for one without effect, and drops its calls.
  static void prefetch(const uint8_t* p) { asm volatile("prefetchnta %0" : : "m"(*p)); }

 protected:
  static __m128i load_128(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static __m128i load_64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  static __m256i broadcast_four(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, 4);
    return _mm256_set1_epi32(four);
  }
  static __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }
  static __m256i dot_signed(__m256i acc, __m256i w, __m256i four) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four, w));
    return in_turn(_mm256_add_epi32(acc, widen(pairs)));
  }
  // Keeps GCC from adding up in another order: it would hold all products at once, most of them in memory.
  static __m256i in_turn(__m256i sum) {
    asm("" : "+x"(sum));
    return sum;
  }
  static __m256 exp2_integral(__m256 v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(127)), 23));
  }
  // All ones in lane i where bit i of `bits` is set, for i < 8.
  static __m256 lanes_of(uint32_t bits) {
    const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(bits));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, own), own));
  }
  template <int kLeft, int kMask>
  static __m256i take_bits(__m256i bits) {
    if constexpr (kLeft > 0) bits = _mm256_slli_epi16(bits, kLeft);
    if constexpr (kLeft < 0) bits = _mm256_srli_epi16(bits, -kLeft);
    return _mm256_and_si256(bits, _mm256_set1_epi8(kMask));
  }
};

}  // namespace
}  // namespace foredraft
