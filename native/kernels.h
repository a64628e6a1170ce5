// The table of kernels that one instruction set provides. Everything a kernel computes for a row depends on that row
// alone: the order of its floating-point operations is the same whatever other rows are computed beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format.h"

namespace foredraft {

// Rows of activations as a matmul reads them: floats for dense weights, else bytes with a scale per group of 32. Rows
// that are multiplied in one pass lie side by side, group after group, so that a pass reads one stream.
struct Rows {
  const float* values;   // [rows][inputs]
  const int8_t* bytes;   // per pass [inputs / 32][rows of the pass][32]
  const float* scales;   // per pass [inputs / 32][rows of the pass]
  const float* sums32;   // like scales: scale * sum of the group's bytes
  // What sums of products of a group, or half group, start from, so that weights count from a centre of 1: minus the
  // sum of the bytes, as the instruction set adds them up.
  const int32_t* starts32;  // like scales
  const int32_t* starts16;  // per pass [inputs / 16][rows of the pass]
  size_t inputs;
  size_t rows_per_pass;  // of every pass but the last, which takes what is left
};

// Consecutive packed tiles of a matrix.
struct Tiles {
  const uint8_t* first;
  size_t stride;  // bytes from one to the next
  size_t count;
};

// What one call of a matmul takes at most.
constexpr size_t kMaxTilesPerCall = 8;
constexpr size_t kMaxRowsPerCall = 128;

// Where results go: out[row * stride + channel] = product + bias + (residual at the same place, or 0).
struct Output {
  float* out;
  const float* residual;  // same layout as out; or null
  const float* bias;      // [channels] or null
  size_t stride;
  size_t channels;        // valid channels of all tiles together
};

enum class Activation : int { Silu, GeluTanh };
enum class RopeStyle : int { Neox, Interleaved };

// One tile of attention: up to kMaxQueries query vectors that share a key/value head.
// Keys lie in blocks of 16 positions: K block [head_width][16], V block [16][head_width], half precision.
struct AttentionTile {
  const float* queries;           // [num_queries][head_width], already scaled
  int num_queries;
  int head_width;                 // a multiple of 16
  const int* positions;           // [num_queries] own position: keys beyond it are not seen
  int window;                     // number of positions seen, own included; 0: all
  float softcap;                  // scores become softcap * tanh(score / softcap); 0: off
  int first_block, num_blocks;    // logical blocks of 16 positions that some query sees
  int shared_blocks;              // blocks below this one are the same for all queries
  const uint16_t* const* keys;    // [shared_blocks - first_block] blocks, then per query group the rest
  const uint16_t* const* values;  // likewise
  int queries_per_row;            // consecutive queries that share their own (unshared) blocks
  float* scores;                  // scratch [num_queries][num_blocks * 16]
  float* out;                     // [num_queries][head_width]
};

struct Kernels {
  const char* name;
  size_t max_rows;  // most rows of one pass; even
  // x[inputs] to bytes, scales, sums and starts of one row of a pass of `rows`; inputs is a multiple of 32.
  void (*quantize_row)(const float* x, size_t inputs, size_t rows, int8_t* bytes, float* scales, float* sums32,
                       int32_t* starts32, int32_t* starts16);
  // Packed tiles times rows.
  void (*matmul[kNumFormats])(const Tiles& tiles, const Rows& rows, size_t num_rows, const Output& output);
  // out = (residual or 0) + x / rms(x) * weight
  void (*rms_norm)(const float* x, const float* weight, const float* residual, float* out, size_t width, float epsilon);
  // out = activation(gate) * up
  void (*gated)(const float* gate, const float* up, float* out, size_t width, Activation activation);
  // Rotates each head of one row in place; cosines and sines are [rotated / 2].
  void (*rope)(float* row, int num_heads, int head_width, int rotated, const float* cosines, const float* sines,
               RopeStyle style);
  void (*attention)(const AttentionTile& tile);
  // One row's keys (values) of one head into slot `lane` of a block.
  void (*store_key)(const float* x, int head_width, uint16_t* block, int lane);
  void (*store_value)(const float* x, int head_width, uint16_t* block, int lane);
  size_t (*argmax)(const float* x, size_t size);  // the lowest index wins ties
  float (*max)(const float* x, size_t size);
  // sum of exp(x - maximum), in a fixed order
  double (*sum_exp)(const float* x, size_t size, float maximum, float scale);
};

const Kernels& portable_kernels();
#if defined(FOREDRAFT_X86)
const Kernels& avx512_kernels();
const Kernels& avxvnni_kernels();
const Kernels& avx2_kernels();
#endif
#if defined(FOREDRAFT_ARM)
const Kernels& neon_kernels();
#endif

// The instruction sets that this processor and this build have, the best first.
std::vector<std::string> available_kernels();

// The kernels for this machine, or those named by `isa` ("avx512", "avxvnni", "avx2", "neon", "portable"; empty: the
// best).
// Throws std::invalid_argument naming the choices where the processor or the build lacks it.
const Kernels& select_kernels(const std::string& isa);

}  // namespace foredraft
