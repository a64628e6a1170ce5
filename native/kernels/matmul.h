// Small-batch matmul over packed tiles, for any vector set V (see simd/).
#pragma once

#include "kernels.h"
#include "kernels/quantized.h"

namespace foredraft {
namespace {

// --- one pass over a tile -------------------------------------------------------------------------------------------

// What a pass reads of its rows, which lie side by side, from some group on.
struct Stream {
  const int8_t* bytes;
  const float* scales;
  const float* sums;
  const int32_t* starts;
};

// Sums of products with the weights of a format. Signed weights have sums of 32 bits from the first.
template <class V, Format kFormat>
struct Sums {
  using Type = typename V::Sums;
};
template <class V>
struct Sums<V, Format::Q8_0> {
  using Type = typename V::I32;
};
template <class V, Format kFormat>
using SumsOf = typename Sums<V, kFormat>::Type;

// Whether the half groups are added up one by one: where each has its scale, or sums could not hold more products.
template <class V, Format kFormat>
constexpr bool in_halves() {
  return kFormat == Format::Q6_K || (kFormat != Format::Q8_0 && !V::holds(largest_value(kFormat), kGroup / 4));
}

// Whether the whole scales of the groups are multiplied with sums, and only a record's totals with what they share.
template <class V, Format kFormat>
constexpr bool by_whole_scales() {
  return V::kWidensByMultiplying && has_whole_scales(kFormat);
}

template <class V, Format kFormat, int kPair, int kRows>
[[gnu::always_inline]] inline void accumulate_pair(const uint8_t* group, const int8_t* x,
                                                   SumsOf<V, kFormat>* sums) {
  constexpr int kBytes = kFormats[static_cast<int>(kFormat)].group_bytes;
  const auto even = read_quad<V, kBytes, 2 * kPair>(group), odd = read_quad<V, kBytes, 2 * kPair + 1>(group);
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    const int8_t* const own = x + kGroup * m + 8 * kPair;
    if constexpr (kFormat == Format::Q8_0) {
      sums[m] = V::dot_signed(sums[m], even, own);
      sums[m] = V::dot_signed(sums[m], odd, own + 4);
    } else {
      sums[m] = V::dot(sums[m], even, own);
      sums[m] = V::dot(sums[m], odd, own + 4);
    }
  }
}

template <class V, Format kFormat, int kRows>
[[gnu::always_inline]] inline void begin_sums(const int32_t* starts, SumsOf<V, kFormat>* sums) {
  constexpr int kShift = centre_shift<V>(kFormat);
  for (int m = 0; m < kRows; ++m) {
    if constexpr (kShift >= 0) {
      sums[m] = V::template start<kShift>(starts + m);
    } else {
      sums[m] = SumsOf<V, kFormat>{};
    }
  }
}

// Sums in 32 bits, times the scales of their half group where those are whole numbers.
template <class V, Format kFormat, int kRows, class AnyScales>
[[gnu::always_inline]] inline void widen_sums(const SumsOf<V, kFormat>* sums, const AnyScales& s, int half,
                                              typename V::I32* wide) {
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    if constexpr (by_whole_scales<V, kFormat>()) {
      wide[m] = V::widen(sums[m], s.scale[half]);
    } else {
      wide[m] = V::widen(sums[m]);
    }
  }
}

template <class V, Format kFormat, int kRows, class AnyScales>
[[gnu::always_inline]] inline void add_scaled(const typename V::I32* wide, const AnyScales& s, int half,
                                              const float* row_scales, typename V::F32* totals) {
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    auto scale = V::broadcast(row_scales[m]);
    if constexpr (!by_whole_scales<V, kFormat>()) scale = V::mul(s.scale[half], scale);
    totals[m] = V::fma(V::to_float(wide[m]), scale, totals[m]);
  }
}

template <class V, int kRows>
[[gnu::always_inline]] inline void add_minimum(typename V::F32 minimum, const float* row_sums,
                                               typename V::F32* totals) {
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) totals[m] = V::fma(minimum, V::broadcast(row_sums[m]), totals[m]);
}

// Products of one group of a pass, but for the minimum. x: what belongs to the group.
template <class V, Format kFormat, int kRows, class AnyScales>
[[gnu::always_inline]] inline void accumulate_group(const uint8_t* group, const AnyScales& s, const Stream& x,
                                                    typename V::F32* totals) {
  // Half groups are joined before they become floats, unless their scales differ and are no factors of them yet.
  constexpr bool kJoined = by_whole_scales<V, kFormat>() || kFormat != Format::Q6_K;
  SumsOf<V, kFormat> sums[kRows];
  typename V::I32 wide[kRows], first[kRows];
  begin_sums<V, kFormat, kRows>(x.starts, sums);
  accumulate_pair<V, kFormat, 0, kRows>(group, x.bytes, sums);
  accumulate_pair<V, kFormat, 1, kRows>(group, x.bytes, sums);
  if constexpr (in_halves<V, kFormat>()) {
    widen_sums<V, kFormat, kRows>(sums, s, 0, first);
    if constexpr (!kJoined) add_scaled<V, kFormat, kRows>(first, s, 0, x.scales, totals);
    begin_sums<V, kFormat, kRows>(x.starts + kRows, sums);
  }
  accumulate_pair<V, kFormat, 2, kRows>(group, x.bytes, sums);
  accumulate_pair<V, kFormat, 3, kRows>(group, x.bytes, sums);
  widen_sums<V, kFormat, kRows>(sums, s, 1, wide);
  if constexpr (in_halves<V, kFormat>() && kJoined) {
    for (int m = 0; m < kRows; ++m) wide[m] = V::add(first[m], wide[m]);
  }
  add_scaled<V, kFormat, kRows>(wide, s, 1, x.scales, totals);
}

// Adds the minimums of a record's groups. sums: those of the rows from its first group on.
template <class V, int kRows>
[[gnu::always_inline]] inline void add_minimums(const uint8_t* record, const float* sums, typename V::F32* totals) {
  const auto minus_dmin = V::sub(V::zero(), V::from_half(reinterpret_cast<const uint16_t*>(record + 32)));
#pragma GCC unroll 8
  for (int i = 0; i < kSuper / kGroup; ++i) {
    add_minimum<V, kRows>(V::mul(minus_dmin, V::from_u8(record + 80 + 32 * i)), sums + kRows * i, totals);
  }
}

// Products of the first `groups` groups of a record. x: what belongs to them, moved on behind them. ahead: what is to
// be fetched meanwhile.
template <class V, Format kFormat, int kRows>
[[gnu::always_inline]] inline void accumulate_record(const uint8_t* record, size_t groups, const uint8_t* ahead,
                                                     Stream* x, typename V::F32* totals) {
  constexpr const FormatInfo& kInfo = kFormats[static_cast<int>(kFormat)];
  constexpr size_t kShare = record_bytes(kInfo) / kInfo.record_groups;
  const float* const sums = x->sums;
  typename V::F32 parts[kRows];
  for (int m = 0; m < kRows; ++m) parts[m] = V::zero();
  for (size_t i = 0; i < groups; ++i, ahead += kShare) {
    for (size_t line = 0; line < kShare; line += 64) V::prefetch(ahead + line);
    const uint8_t* const group = record + kInfo.scale_bytes + i * kInfo.group_bytes;
    if constexpr (by_whole_scales<V, kFormat>()) {
      accumulate_group<V, kFormat, kRows>(group, read_whole_scales<V, kFormat>(record, i), *x, parts);
    } else {
      const Scales<V> s = read_scales<V, kFormat>(record, i);
      accumulate_group<V, kFormat, kRows>(group, s, *x, totals);
      if constexpr (has_minimum(kFormat)) add_minimum<V, kRows>(s.minimum, x->sums, totals);
    }
    x->bytes += kGroup * kRows;
    x->scales += kRows;
    x->sums += kRows;
    x->starts += kRows * (in_halves<V, kFormat>() ? 2 : 1);
  }
  if constexpr (by_whole_scales<V, kFormat>()) {
    const auto d = V::from_half(reinterpret_cast<const uint16_t*>(record));
    for (int m = 0; m < kRows; ++m) totals[m] = V::fma(parts[m], d, totals[m]);
    if constexpr (has_minimum(kFormat)) add_minimums<V, kRows>(record, sums, totals);
  }
}

template <class V>
inline void write_row(typename V::F32 total, const Output& o, size_t row, size_t tile) {
  const size_t channel = tile * kTile;
  float* const out = o.out + row * o.stride + channel;
  const float* const residual = o.residual ? o.residual + row * o.stride + channel : nullptr;
  const float* const bias = o.bias ? o.bias + channel : nullptr;
  if (o.channels - channel >= kTile) {
    if (bias) total = V::add(total, V::load(bias));
    if (residual) total = V::add(total, V::load(residual));
    V::store(out, total);
    return;
  }
  float lanes[kTile];
  V::store(lanes, total);
  for (size_t c = 0; c < o.channels - channel; ++c) {
    float v = lanes[c];
    if (bias) v += bias[c];
    if (residual) v += residual[c];
    out[c] = v;
  }
}

// With more rows than one pass takes, the inputs are cut into spans. Of one span, the rows of a pass stay in the
// first-level cache while the tiles stream by, from memory for the first pass and from the next cache for the others.
constexpr size_t kSpan = 1024;

// Sums between spans, 16 channels for each tile and row.
struct Totals {
  alignas(64) float sums[kMaxTilesPerCall][kMaxRowsPerCall][kTile];
};

// What one pass goes over: the inputs from `begin` to `end` of one tile, for rows from `first` on. `next`: where the
// weights that are needed afterwards begin.
struct Pass {
  const uint8_t* weights;
  const uint8_t* next;
  size_t tile, first, begin, end;
};

template <class V, Format kFormat, int kRows>
[[gnu::always_inline]] inline void integer_span(const Rows& rows, const Pass& pass, typename V::F32* totals) {
  constexpr const FormatInfo& kInfo = kFormats[static_cast<int>(kFormat)];
  constexpr size_t kRecord = record_bytes(kInfo), kPerRecord = kInfo.record_groups;
  constexpr size_t kAhead = 6144 / kRecord + 1;  // records that are fetched ahead
  const size_t first = pass.first * (rows.inputs / kGroup) + pass.begin / kGroup * kRows;  // group of a row
  const uint8_t* record = pass.weights + pass.begin / kGroup / kPerRecord * kRecord;
  Stream x{rows.bytes + kGroup * first, rows.scales + first, rows.sums32 + first,
           in_halves<V, kFormat>() ? rows.starts16 + 2 * first : rows.starts32 + first};
  size_t groups = (pass.end - pass.begin) / kGroup;
  for (size_t records = (groups + kPerRecord - 1) / kPerRecord; records > 0; --records, record += kRecord) {
    const uint8_t* const ahead =
        records > kAhead ? record + kAhead * kRecord : pass.next + (kAhead - records) * kRecord;
    const size_t own = groups < kPerRecord ? groups : kPerRecord;
    accumulate_record<V, kFormat, kRows>(record, own, ahead, &x, totals);
    groups -= own;
  }
}

template <class V, Format kFormat, int kRows>
[[gnu::always_inline]] inline void dense_span(const Rows& rows, const Pass& pass, typename V::F32* totals) {
  constexpr size_t kElement = kFormats[static_cast<int>(kFormat)].element_bytes;
  const float* const x = rows.values + pass.first * rows.inputs;
  const uint8_t* tile = pass.weights + pass.begin * kTile * kElement;
  for (size_t k = pass.begin; k < pass.end; ++k, tile += kTile * kElement) {
    typename V::F32 w;
    if constexpr (kFormat == Format::F32) w = V::load(reinterpret_cast<const float*>(tile));
    if constexpr (kFormat == Format::F16) w = V::from_half(reinterpret_cast<const uint16_t*>(tile));
    if constexpr (kFormat == Format::BF16) w = V::from_bfloat(reinterpret_cast<const uint16_t*>(tile));
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      totals[m] = V::fma(w, V::broadcast(x[static_cast<size_t>(m) * rows.inputs + k]), totals[m]);
    }
  }
}

// Adds the products of the pass's inputs to the sums of kRows rows. Not inlined: together, the variants for all numbers
// of rows would have too few registers.
template <class V, Format kFormat, int kRows>
[[gnu::noinline]] void one_pass(const Rows& rows, const Pass& pass, Totals& kept, const Output& output) {
  auto* const sums = kept.sums[pass.tile] + pass.first;
  typename V::F32 totals[kRows];
  for (int m = 0; m < kRows; ++m) totals[m] = pass.begin == 0 ? V::zero() : V::load(sums[m]);
  if constexpr (kFormats[static_cast<int>(kFormat)].element_bytes != 0) {
    dense_span<V, kFormat, kRows>(rows, pass, totals);
  } else {
    integer_span<V, kFormat, kRows>(rows, pass, totals);
  }
  for (int m = 0; m < kRows; ++m) {
    if (pass.end < rows.inputs) {
      V::store(sums[m], totals[m]);
    } else {
      write_row<V>(totals[m], output, pass.first + static_cast<size_t>(m), pass.tile);
    }
  }
}

template <class V, Format kFormat, int kRows>
void pass_over(size_t num_rows, const Rows& rows, const Pass& pass, Totals& kept, const Output& output) {
  if (num_rows >= kRows) {
    one_pass<V, kFormat, kRows>(rows, pass, kept, output);
  } else if constexpr (kRows > 1) {
    pass_over<V, kFormat, kRows - 1>(num_rows, rows, pass, kept, output);
  }
}

// Where the records of the inputs from `input` on begin within a tile.
template <Format kFormat>
inline size_t packed_offset(size_t input) {
  constexpr const FormatInfo& kInfo = kFormats[static_cast<int>(kFormat)];
  return input / kGroup / static_cast<size_t>(kInfo.record_groups) * record_bytes(kInfo);
}

// A row's inputs are added up in their order, span after span, however many rows go along.
template <class V, Format kFormat>
void matmul(const Tiles& tiles, const Rows& rows, size_t num_rows, const Output& output) {
  Totals kept;
  const size_t rows_per_pass = rows.rows_per_pass;
  const size_t spans = num_rows > rows_per_pass ? (rows.inputs + kSpan - 1) / kSpan : 1;
  const size_t span = spans == 1 ? rows.inputs : (rows.inputs / spans + kSuper - 1) / kSuper * kSuper;
  for (size_t begin = 0; begin < rows.inputs; begin += span) {
    const size_t end = begin + span < rows.inputs ? begin + span : rows.inputs;
    for (size_t first = 0; first < num_rows; first += rows_per_pass) {
      const size_t count = num_rows - first < rows_per_pass ? num_rows - first : rows_per_pass;
      for (size_t t = 0; t < tiles.count; ++t) {
        const uint8_t* const weights = tiles.first + t * tiles.stride;
        const bool more_tiles = t + 1 < tiles.count, more_rows = first + count < num_rows;
        const uint8_t* const following = more_tiles ? weights + tiles.stride : tiles.first;
        const uint8_t* const next = following + packed_offset<kFormat>(more_tiles || more_rows ? begin : end);
        pass_over<V, kFormat, V::kMaxRows>(count, rows, Pass{weights, next, t, first, begin, end}, kept, output);
      }
    }
  }
}

// Bytes, scale, sums and starts of one row; the scale of a group maps its largest magnitude to 127. A group that holds
// a NaN or an infinity gets such a scale, so that every result it takes part in shows it. A group too small for
// 1 / scale to be a float counts as zero.
constexpr float kTiny = 1e-36f;

template <class V>
void quantize_row(const float* x, size_t inputs, size_t rows, int8_t* bytes, float* scales, float* sums32,
                  int32_t* starts32, int32_t* starts16) {
  for (size_t g = 0; g < inputs / kGroup; ++g, x += kGroup, bytes += kGroup * rows) {
    const auto low = V::load(x), high = V::load(x + 16);
    float largest = V::largest_magnitude(low, high);
    if (largest < kTiny) largest = 0.0f;
    const float scale = largest / 127.0f;
    const auto inverse = V::broadcast(largest > 0.0f ? 127.0f / largest : 0.0f);
    const auto bound = V::broadcast(127.0f), minus_bound = V::broadcast(-127.0f);
    V::to_i8(bytes, V::min(V::max(V::round(V::mul(low, inverse)), minus_bound), bound));
    V::to_i8(bytes + 16, V::min(V::max(V::round(V::mul(high, inverse)), minus_bound), bound));
    const int sum[2] = {V::sum_bytes(bytes), V::sum_bytes(bytes + 16)};
    scales[g * rows] = scale;
    sums32[g * rows] = scale * static_cast<float>(sum[0] + sum[1]);
    starts32[g * rows] = V::start_of(bytes, kGroup);
    starts16[2 * g * rows] = V::start_of(bytes, kGroup / 2);
    starts16[(2 * g + 1) * rows] = V::start_of(bytes + kGroup / 2, kGroup / 2);
  }
}

}  // namespace
}  // namespace foredraft
