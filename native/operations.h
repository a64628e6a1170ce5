// The operations a program is made of. See Program for what their arguments must satisfy.
#pragma once

#include <memory>
#include <vector>

#include "program.h"

namespace foredraft {

std::unique_ptr<Operation> make_embed(Format format, std::shared_ptr<const uint8_t> data, size_t width, float scale,
                                      int out);
std::unique_ptr<Operation> make_rms_norm(int input, std::vector<float> weight, float epsilon, int residual, int out);
std::unique_ptr<Operation> make_linear(int input, std::vector<Linear> matrices, bool precise,
                                       std::vector<int> outs);
std::unique_ptr<Operation> make_rope(int buffer, int num_heads, int table, RopeStyle style);
std::unique_ptr<Operation> make_attention(int queries, int keys, int values, const AttentionShape& shape, int out);
std::unique_ptr<Operation> make_gated(int gate, int up, Activation activation, int out);
std::unique_ptr<Operation> make_select(int input, int out);

}  // namespace foredraft
