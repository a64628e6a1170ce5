// Sixteen-lane vectors on Arm's NEON with dot products: four registers of four lanes. Same names as simd/avx512.h.
// Included only by the translation unit compiled for this instruction set.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "simd/whole_sums.h"

namespace foredraft {
namespace {

struct Neon : WholeSums<Neon> {
  static constexpr const char* kName = "neon";
  static constexpr int kMaxRows = 4;  // their integer sums take 16 of the 32 registers
  struct F32 {
    float32x4_t part[4];
  };
  struct I32 {
    int32x4_t part[4];
  };
  struct Bytes {  // 16 channels x 4 consecutive inner positions
    uint8x16_t part[4];
  };

  static F32 zero() { return broadcast(0.0f); }
  static F32 load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
  static void store(float* p, F32 v) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v.part[i]);
  }
  static F32 broadcast(float v) {
    const float32x4_t all = vdupq_n_f32(v);
    return {all, all, all, all};
  }
  static F32 add(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
  }
  static F32 sub(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
  }
  static F32 mul(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
  }
  static F32 div(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
  }
  // The second where one is NaN, as with the other sets: the instructions for it give NaN, or never do.
  static F32 max(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vbslq_f32(vcgtq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
  }
  static F32 min(F32 a, F32 b) {
    return of_parts<F32>([&](int i) { return vbslq_f32(vcltq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
  }
  static F32 fma(F32 a, F32 b, F32 c) {
    return of_parts<F32>([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
  }
  static F32 abs(F32 a) {
    return of_parts<F32>([&](int i) { return vabsq_f32(a.part[i]); });
  }
  static F32 round(F32 a) {  // ties to even
    return of_parts<F32>([&](int i) { return vrndnq_f32(a.part[i]); });
  }
  static F32 from_half(const uint16_t* p) {
    return of_parts<F32>([&](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
  }
  static F32 from_bfloat(const uint16_t* p) {
    return of_parts<F32>([&](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
  }
  static void to_half(uint16_t* p, F32 v) {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(v.part[i])));
  }
  static F32 from_u8(const uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))};
  }
  static F32 from_i8(const int8_t* p) {
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
  }
  static void to_i8(int8_t* p, F32 v) {
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(v.part[0])), vcvtnq_s32_f32(v.part[1]));
    const int16x8_t high = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(v.part[2])), vcvtnq_s32_f32(v.part[3]));
    vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
  }
  static int sum_bytes(const int8_t* p) { return vaddlvq_s8(vld1q_s8(p)); }  // of sixteen
  // The largest magnitude of both, where NaN is the largest of all: as integers, its bits are.
  static float largest_magnitude(F32 a, F32 b) {
    uint32x4_t best = vdupq_n_u32(0);
    for (int i = 0; i < 4; ++i) {
      best = vmaxq_u32(best, vreinterpretq_u32_f32(vabsq_f32(a.part[i])));
      best = vmaxq_u32(best, vreinterpretq_u32_f32(vabsq_f32(b.part[i])));
    }
    return vgetq_lane_f32(vreinterpretq_f32_u32(vdupq_n_u32(vmaxvq_u32(best))), 0);
  }
  // 2^v for integral v in the range of a normal float.
  static F32 exp2_integral(F32 v) {
    return of_parts<F32>([&](int i) {
      return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(v.part[i]), vdupq_n_s32(127)), 23));
    });
  }
  // Keeps the lanes whose bit in `keep` is set, and puts `other` into the rest.
  static F32 select(uint32_t keep, F32 v, F32 other) {
    const uint32x4_t own = {1, 2, 4, 8};
    return of_parts<F32>([&](int i) {
      return vbslq_f32(vtstq_u32(vdupq_n_u32(keep >> (4 * i)), own), v.part[i], other.part[i]);
    });
  }
  // v where test > bound, elsewhere 0.
  static F32 keep_if_greater(F32 v, F32 test, F32 bound) {
    return of_parts<F32>([&](int i) {
      return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(v.part[i]), vcgtq_f32(test.part[i], bound.part[i])));
    });
  }

  static I32 add(I32 a, I32 b) {
    return of_parts<I32>([&](int i) { return vaddq_s32(a.part[i], b.part[i]); });
  }
  static F32 to_float(I32 v) {
    return of_parts<F32>([&](int i) { return vcvtq_f32_s32(v.part[i]); });
  }
  using Sums = I32;
  static I32 widen(Sums v) { return v; }
  template <int kShift>
  static Sums start(const int32_t* of) {
    const int32x4_t all = vshlq_n_s32(vld1q_dup_s32(of), kShift);
    return {all, all, all, all};
  }
  // acc[c] += sum over i < 4 of w[c][i] * x[i]. Weights of up to 6 bits are the same, taken as signed or unsigned.
  static Sums dot(Sums acc, Bytes w, const int8_t* x) {
    const int8x8_t four = load_four(x);
    return of_parts<Sums>([&](int i) {
      return vdotq_lane_s32(acc.part[i], vreinterpretq_s8_u8(w.part[i]), four, 0);
    });
  }
  static constexpr int kSignedOffset = 0;
  static I32 dot_signed(I32 acc, Bytes w, const int8_t* x) { return dot(acc, w, x); }

  static Bytes load_bytes(const uint8_t* p) {
    return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
  }
  static Bytes low_nibbles(Bytes v) { return take_bits<0, 0x0f>(v); }
  static Bytes high_nibbles(Bytes v) { return take_bits<-4, 0x0f>(v); }
  // Bits shifted left by kLeft (right when negative), masked to kMask.
  template <int kLeft, int kMask>
  static Bytes take_bits(Bytes bits) {
    constexpr bool kAllThatIsLeft = kLeft < 0 && kMask == 0xff >> -kLeft;
    return of_parts<Bytes>([&](int i) {
      const uint8x16_t moved = shifted<kLeft>(bits.part[i]);
      return kAllThatIsLeft ? moved : vandq_u8(moved, vdupq_n_u8(kMask));
    });
  }
  // base | take_bits(bits), where base has no bit of the mask set.
  template <int kLeft, int kMask>
  static Bytes insert_bits(Bytes base, Bytes bits) {
    return of_parts<Bytes>([&](int i) {
      return vbslq_u8(vdupq_n_u8(kMask), shifted<kLeft>(bits.part[i]), base.part[i]);
    });
  }
  // Written as assembly: GCC takes a function that only prefetches for one without effect, and drops its calls.
  static void prefetch(const uint8_t* p) { asm volatile("prfm pldl1keep, %0" : : "Q"(*p)); }

 private:
  template <class Vector, class Part>
  [[gnu::always_inline]] static Vector of_parts(Part part) {
    return {part(0), part(1), part(2), part(3)};
  }
  template <int kLeft>
  static uint8x16_t shifted(uint8x16_t v) {
    if constexpr (kLeft > 0) return vshlq_n_u8(v, kLeft);
    if constexpr (kLeft < 0) return vshrq_n_u8(v, -kLeft);
    return v;
  }
  // Four bytes as the first lane of a register. Written as assembly: as an intrinsic it would be a load that also
  // copies the lane, which takes an arithmetic unit on many processors, or one that waits for what was there before.
  static int8x8_t load_four(const int8_t* x) {
    int8x8_t four;
    asm("ldr %s0, %1" : "=w"(four) : "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
    return four;
  }
};

}  // namespace
}  // namespace foredraft
