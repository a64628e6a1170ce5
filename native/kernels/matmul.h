// Small-batch matmul over packed tiles, for any vector set V (see simd/).
#pragma once

#include "format.h"
#include "kernels.h"

namespace foredraft {
namespace {

// --- how each format yields its quads and scales --------------------------------------------------------------------

template <class V>
struct Scales {
  typename V::F32 scale[2];   // of the two half groups; one and the same but for Q6_K
  typename V::F32 offset[2];  // weight = scale * q + offset
};

// Quads of a group: the nibbles, with whatever bit planes the format adds.
template <class V, int kGroupBytes>
struct Quads {
  typename V::Bytes plane[2];

  explicit Quads(const uint8_t* group) {
    if constexpr (kGroupBytes >= 320) plane[0] = V::load_bytes(group + 256);
    if constexpr (kGroupBytes >= 384) plane[1] = V::load_bytes(group + 320);
  }

  template <int kPair>
  void pair(const uint8_t* group, typename V::Bytes* even, typename V::Bytes* odd) const {
    if constexpr (kGroupBytes == 512) {
      *even = V::load_bytes(group + 128 * kPair);
      *odd = V::load_bytes(group + 128 * kPair + 64);
      return;
    } else {
      const typename V::Bytes both = V::load_bytes(group + 64 * kPair);
      *even = V::low_nibbles(both);
      *odd = V::high_nibbles(both);
    }
    if constexpr (kGroupBytes == 320) {
      *even = V::template insert_bits<4 - 2 * kPair, 0x10>(*even, plane[0]);
      *odd = V::template insert_bits<3 - 2 * kPair, 0x10>(*odd, plane[0]);
    }
    if constexpr (kGroupBytes == 384) {
      constexpr int kShift = 4 - 4 * (kPair % 2);
      *even = V::template insert_bits<kShift, 0x30>(*even, plane[kPair / 2]);
      *odd = V::template insert_bits<kShift - 2, 0x30>(*odd, plane[kPair / 2]);
    }
  }
};

// What must be added to every unsigned value to give the format's own: w = scale * (q - centre).
template <class V, Format kFormat>
constexpr int centre() {
  switch (kFormat) {
    case Format::Q4_0:
      return 8;
    case Format::Q5_0:
      return 16;
    case Format::Q8_0:
      return V::kSignedOffset;
    case Format::Q6_K:
      return 32;
    default:
      return 0;
  }
}

// Scales of group `index` of a record.
template <class V, Format kFormat>
inline Scales<V> read_scales(const uint8_t* record, size_t index) {
  constexpr const FormatInfo& kInfo = kFormats[static_cast<int>(kFormat)];
  Scales<V> s;
  if constexpr (kFormat == Format::Q4_K || kFormat == Format::Q5_K) {
    const uint8_t* const own = record + 64 + 32 * index;
    const auto d = V::from_half(reinterpret_cast<const uint16_t*>(record));
    const auto dmin = V::from_half(reinterpret_cast<const uint16_t*>(record + 32));
    s.scale[0] = s.scale[1] = V::mul(d, V::from_u8(own));
    s.offset[0] = s.offset[1] = V::sub(V::zero(), V::mul(dmin, V::from_u8(own + 16)));
  } else if constexpr (kFormat == Format::Q6_K) {
    const auto d = V::from_half(reinterpret_cast<const uint16_t*>(record));
    const auto minus_centre = V::broadcast(-32.0f);
    for (int half = 0; half < 2; ++half) {
      s.scale[half] = V::mul(d, V::from_i8(reinterpret_cast<const int8_t*>(record + 32 + 32 * index + 16 * half)));
      s.offset[half] = V::mul(s.scale[half], minus_centre);
    }
  } else {
    constexpr size_t kBytes = kInfo.scale_bytes / kInfo.record_groups;
    const uint8_t* const own = record + index * kBytes;
    s.scale[0] = s.scale[1] = V::from_half(reinterpret_cast<const uint16_t*>(own));
    if constexpr (kBytes == 64) {
      s.offset[0] = s.offset[1] = V::from_half(reinterpret_cast<const uint16_t*>(own + 32));
    } else {
      s.offset[0] = s.offset[1] = V::mul(s.scale[0], V::broadcast(static_cast<float>(-centre<V, kFormat>())));
    }
  }
  return s;
}

// --- one pass over a tile -------------------------------------------------------------------------------------------

template <class V, Format kFormat, int kPair, int kRows>
[[gnu::always_inline]] inline void accumulate_pair(const Quads<V, kFormats[static_cast<int>(kFormat)].group_bytes>& quads,
                                                   const uint8_t* group, const int8_t* x, typename V::I32* sums) {
  typename V::Bytes even, odd;
  quads.template pair<kPair>(group, &even, &odd);
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

template <class V, int kRows>
[[gnu::always_inline]] inline void add_scaled(const typename V::I32* sums, typename V::F32 scale,
                                              typename V::F32 offset, const float* row_scales, const float* row_sums,
                                              typename V::F32* totals) {
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
    totals[m] = V::fma(V::to_float(sums[m]), V::mul(scale, V::broadcast(row_scales[m])), totals[m]);
    totals[m] = V::fma(offset, V::broadcast(row_sums[m]), totals[m]);
  }
}

// One group of a pass. x, scales and sums: those of the group's rows, side by side.
template <class V, Format kFormat, int kRows>
[[gnu::always_inline]] inline void accumulate_group(const uint8_t* group, const Scales<V>& s, const int8_t* x,
                                                    const float* scales, const float* row_sums,
                                                    typename V::F32* totals) {
  const Quads<V, kFormats[static_cast<int>(kFormat)].group_bytes> quads(group);
  typename V::I32 sums[kRows];
  for (int m = 0; m < kRows; ++m) sums[m] = V::zero_i32();
  accumulate_pair<V, kFormat, 0, kRows>(quads, group, x, sums);
  accumulate_pair<V, kFormat, 1, kRows>(quads, group, x, sums);
  if constexpr (kFormat == Format::Q6_K) {  // its scales cover 16 inputs
    add_scaled<V, kRows>(sums, s.scale[0], s.offset[0], scales, row_sums, totals);
    row_sums += kRows;
    for (int m = 0; m < kRows; ++m) sums[m] = V::zero_i32();
  }
  accumulate_pair<V, kFormat, 2, kRows>(quads, group, x, sums);
  accumulate_pair<V, kFormat, 3, kRows>(quads, group, x, sums);
  add_scaled<V, kRows>(sums, s.scale[1], s.offset[1], scales, row_sums, totals);
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
  constexpr size_t kRecord = record_bytes(kInfo), kPerRecord = kInfo.record_groups, kShare = kRecord / kPerRecord;
  constexpr size_t kAhead = 6144 / kRecord + 1;  // records that are fetched ahead
  constexpr size_t kHalves = kFormat == Format::Q6_K ? 2 : 1;
  const size_t first = pass.first * (rows.inputs / kGroup) + pass.begin / kGroup * kRows;  // group of a row
  const uint8_t* record = pass.weights + pass.begin / kGroup / kPerRecord * kRecord;
  const int8_t* x = rows.bytes + kGroup * first;
  const float* scales = rows.scales + first;
  const float* sums = (kHalves == 2 ? rows.sums16 : rows.sums32) + kHalves * first;
  size_t groups = (pass.end - pass.begin) / kGroup;
  for (size_t records = (groups + kPerRecord - 1) / kPerRecord; records > 0; --records, record += kRecord) {
    const uint8_t* ahead = records > kAhead ? record + kAhead * kRecord : pass.next + (kAhead - records) * kRecord;
    for (size_t i = 0; i < kPerRecord && groups > 0; ++i, --groups) {
      for (size_t line = 0; line < kShare; line += 64) V::prefetch(ahead + line);
      accumulate_group<V, kFormat, kRows>(record + kInfo.scale_bytes + i * kInfo.group_bytes,
                                          read_scales<V, kFormat>(record, i), x, scales, sums, totals);
      ahead += kShare;
      x += kGroup * kRows;
      scales += kRows;
      sums += kHalves * kRows;
    }
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

// Bytes, scale and sums of one row; the scale of a group maps its largest magnitude to 127. A group that holds a NaN
// or an infinity gets such a scale, so that every result it takes part in shows it. A group too small for 1 / scale to
// be a float counts as zero.
constexpr float kTiny = 1e-36f;

template <class V>
void quantize_row(const float* x, size_t inputs, size_t rows, int8_t* bytes, float* scales, float* sums32,
                  float* sums16) {
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
    sums16[2 * g * rows] = scale * static_cast<float>(sum[0]);
    sums16[(2 * g + 1) * rows] = scale * static_cast<float>(sum[1]);
    sums32[g * rows] = scale * static_cast<float>(sum[0] + sum[1]);
  }
}

}  // namespace
}  // namespace foredraft
