// The choice of tokens from a row of logits. Same rules as foredraft/sampling/pick.py, which states them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"

namespace foredraft {

struct SamplingRule {
  double temperature = 0.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t position = 0;
};

// The up to `count` tokens with the largest perturbed logits, largest first; `count` is at least 1.
// token_ids: which token each logit belongs to, in rising order; null: the i-th logit is token i's.
// Throws std::domain_error where a logit is NaN or +inf, or all are -inf, and std::invalid_argument where the rule is
// not one of SamplingParams.
std::vector<int64_t> pick(const Kernels& kernels, const float* logits, size_t size, const SamplingRule& rule,
                          size_t count, const int32_t* token_ids = nullptr);

// Standard Gumbel noise of a token (Philox4x32-10, see foredraft/sampling/noise.py).
double gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token);

// Probability of `token` under softmax(logits / temperature); temperature above 0. Throws as pick does.
double token_probability(const Kernels& kernels, const float* logits, size_t size, double temperature, size_t token);

}  // namespace foredraft
