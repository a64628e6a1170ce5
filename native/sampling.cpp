#include "sampling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace foredraft {
namespace {

constexpr double kLargestNoise = 22.9;  // -log(-log(1 - 2^-33)) = 22.87...

struct Words {
  uint32_t w[4];
};

Words philox(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.w[0], b = uint64_t{0xCD9E8D57u} * counter.w[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.w[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.w[3] ^ key1, static_cast<uint32_t>(a)}};
  }
  return counter;
}

// Noise of tokens asked for in any order; neighbours share one run of the generator.
class NoiseSource {
 public:
  NoiseSource(uint64_t seed, uint32_t choice, uint32_t position) : seed_(seed), choice_(choice), position_(position) {}

  uint32_t word(uint32_t token) {
    if (token >> 2 != block_) {
      block_ = token >> 2;
      words_ = philox({{block_, position_, choice_, 0x666f7264u}}, static_cast<uint32_t>(seed_),
                      static_cast<uint32_t>(seed_ >> 32));
    }
    return words_.w[token & 3];
  }
  double at(uint32_t token) { return -std::log(-std::log((word(token) + 0.5) * 0x1p-32)); }

 private:
  uint64_t seed_;
  uint32_t choice_, position_;
  uint32_t block_ = std::numeric_limits<uint32_t>::max();
  Words words_{};
};

struct Scored {
  double score;
  int64_t id;
  bool operator<(const Scored& other) const { return score > other.score || (score == other.score && id < other.id); }
};

// Tells cheaply that a token's noise is too small. Almost no token comes near the best one, and two logarithms for each
// of them would take longer than all the rest.
class NoiseBound {
 public:
  NoiseBound() {
    for (int i = 0; i < kSteps; ++i) {
      // noise >= delta exactly if (word + 0.5) / 2^32 >= exp(-exp(-delta)); two words less, to be on the safe side.
      const double word = std::exp(-std::exp(-kStep * i)) * 0x1p32 - 2.5;
      least_[i] = word > 0.0 ? static_cast<uint32_t>(word) : 0;
    }
  }
  // Whether noise from this word may reach `needed`; never wrong when it says no.
  bool may_reach(double needed, uint32_t word) const {
    if (needed <= 0.0) return true;
    const double step = needed / kStep;
    return step < kSteps && word >= least_[static_cast<int>(step)];
  }

 private:
  static constexpr int kSteps = 128;
  static constexpr double kStep = 0.25;  // 128 steps of it reach beyond the largest noise
  uint32_t least_[kSteps];
};

// The best few, kept in order.
class Best {
 public:
  explicit Best(size_t count) : count_(count) {}
  double worst() const {
    return found_.size() < count_ ? -std::numeric_limits<double>::infinity() : found_.back().score;
  }
  void offer(double score, int64_t id) {
    const Scored candidate{score, id};
    if (found_.size() == count_) {
      if (!(candidate < found_.back())) return;
      found_.pop_back();
    }
    found_.insert(std::upper_bound(found_.begin(), found_.end(), candidate), candidate);
  }
  std::vector<int64_t> ids() const {
    std::vector<int64_t> ids;
    for (const Scored& s : found_) ids.push_back(s.id);
    return ids;
  }

 private:
  size_t count_;
  std::vector<Scored> found_;
};

// Logits of a block: they stay in the first cache from the check to the maximum, and as many blocks as tokens are asked
// for are looked through once more, one logit at a time.
constexpr size_t kBlock = 512;

// Whether none is NaN or +inf. Sixteen side by side, as whole words: compilers make vectors of that.
bool all_usable(const float* logits, size_t size) {
  constexpr size_t kLanes = 16;
  uint32_t bad[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) bad[lane] |= logits[i + lane] <= FLT_MAX ? 0u : 1u;
  }
  for (; i < size; ++i) bad[0] |= logits[i] <= FLT_MAX ? 0u : 1u;
  return std::all_of(bad, bad + kLanes, [](uint32_t lane) { return lane == 0; });
}

// The largest logit of each block. Throws where a logit is unusable, or none is usable.
std::vector<float> checked_block_maxima(const Kernels& kernels, const float* logits, size_t size) {
  std::vector<float> maxima;
  maxima.reserve(size / kBlock + 1);
  bool good = true;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    const size_t count = std::min(kBlock, size - begin);
    good &= all_usable(logits + begin, count);
    maxima.push_back(kernels.max(logits + begin, count));
  }
  if (!good) throw std::domain_error("the model computed a logit that is not a number or infinite");
  if (maxima.empty() || *std::max_element(maxima.begin(), maxima.end()) == -INFINITY) {
    throw std::domain_error("every token is excluded: all logits are -inf");
  }
  return maxima;
}

float checked_max(const Kernels& kernels, const float* logits, size_t size) {
  const std::vector<float> maxima = checked_block_maxima(kernels, logits, size);
  return *std::max_element(maxima.begin(), maxima.end());
}

// Indices of the largest logits. As many blocks as are asked for logits hold them all: those with the largest maxima,
// of equal ones the first, since each logit elsewhere has as many at least as large before it.
std::vector<int64_t> largest_indices(const Kernels& kernels, const float* logits, size_t size, size_t count) {
  const std::vector<float> maxima = checked_block_maxima(kernels, logits, size);
  Best blocks(count), best(count);
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] > blocks.worst()) blocks.offer(maxima[block], static_cast<int64_t>(block));
  }
  std::vector<int64_t> rising = blocks.ids();
  std::sort(rising.begin(), rising.end());
  for (int64_t block : rising) {
    const size_t begin = static_cast<size_t>(block) * kBlock, end = std::min(begin + kBlock, size);
    for (size_t i = begin; i < end; ++i) {
      if (logits[i] > best.worst()) best.offer(logits[i], static_cast<int64_t>(i));
    }
  }
  return best.ids();
}

void check_rule(const SamplingRule& rule) {
  if (!(rule.temperature >= 0.0 && rule.temperature <= DBL_MAX)) {
    throw std::invalid_argument("pick: the temperature must be a number that is not negative");
  }
  if (rule.top_k < 0 || !(rule.top_p > 0.0 && rule.top_p <= 1.0) || !(rule.min_p >= 0.0 && rule.min_p <= 1.0)) {
    throw std::invalid_argument("pick: top_k must not be negative, top_p must be in (0, 1], min_p in [0, 1]");
  }
}

// Ids in the order of falling logit, equal ones by rising id; only the first `sorted` places are in order.
void sort_front(std::vector<int64_t>& ids, const float* logits, size_t sorted) {
  const auto before = [logits](int64_t a, int64_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(sorted), ids.end(), before);
}

// Cuts `ids` to the shortest prefix by falling logit whose share of the weight reaches top_p.
void keep_top_p(std::vector<int64_t>& ids, const float* logits, float largest, const SamplingRule& rule) {
  const auto weight = [&](int64_t id) { return std::exp((double{logits[id]} - double{largest}) / rule.temperature); };
  double total = 0.0;
  for (int64_t id : ids) total += weight(id);
  const double enough = rule.top_p * total;
  double mass = 0.0;
  size_t kept = 0;
  for (size_t sorted = std::min<size_t>(256, ids.size());; sorted = std::min(4 * sorted, ids.size())) {
    sort_front(ids, logits, sorted);
    while (kept < sorted && (kept == 0 || mass < enough)) mass += weight(ids[kept++]);
    if (mass >= enough || kept == ids.size()) break;
  }
  ids.resize(kept);
}

// Indices of the chosen logits.
std::vector<int64_t> pick_indices(const Kernels& kernels, const float* logits, size_t size, const SamplingRule& rule,
                                  size_t count, const int32_t* token_ids) {
  check_rule(rule);
  if (count == 0) throw std::invalid_argument("pick: at least one token must be asked for");
  if (rule.temperature == 0.0) return largest_indices(kernels, logits, size, count);
  const float largest = checked_max(kernels, logits, size);
  Best best(count);
  NoiseSource noise(rule.seed, rule.choice, rule.position);
  static const NoiseBound bound;
  const auto consider = [&](int64_t id) {
    const double z = (double{logits[id]} - double{largest}) / rule.temperature;
    const double needed = best.worst() - z;
    if (needed > kLargestNoise || logits[id] == -INFINITY) return;
    const uint32_t token = static_cast<uint32_t>(token_ids ? token_ids[id] : id);
    if (bound.may_reach(needed, noise.word(token))) best.offer(z + noise.at(token), id);
  };
  const bool filtered = (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < size) || rule.top_p < 1.0 || rule.min_p > 0.0;
  if (!filtered) {
    // The likeliest token first: most others cannot reach it any more.
    const int64_t likeliest = static_cast<int64_t>(kernels.argmax(logits, size));
    consider(likeliest);
    for (int64_t i = 0; i < static_cast<int64_t>(size); ++i) {
      if (i != likeliest) consider(i);
    }
    return best.ids();
  }
  std::vector<int64_t> ids;
  ids.reserve(size);
  for (size_t i = 0; i < size; ++i) {
    if (logits[i] != -INFINITY) ids.push_back(static_cast<int64_t>(i));
  }
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < ids.size()) {
    sort_front(ids, logits, static_cast<size_t>(rule.top_k));
    ids.resize(static_cast<size_t>(rule.top_k));
  }
  // The sum behind top_p runs in rising order of the ids.
  std::sort(ids.begin(), ids.end());
  if (rule.top_p < 1.0) keep_top_p(ids, logits, largest, rule);
  for (int64_t id : ids) {
    if (rule.min_p > 0.0 && std::exp((double{logits[id]} - double{largest}) / rule.temperature) < rule.min_p) continue;
    consider(id);
  }
  return best.ids();
}

}  // namespace

std::vector<int64_t> pick(const Kernels& kernels, const float* logits, size_t size, const SamplingRule& rule,
                          size_t count, const int32_t* token_ids) {
  std::vector<int64_t> chosen = pick_indices(kernels, logits, size, rule, count, token_ids);
  if (token_ids) {
    for (int64_t& index : chosen) index = token_ids[index];
  }
  return chosen;
}

double gumbel(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token) {
  return NoiseSource(seed, choice, position).at(token);
}

double token_probability(const Kernels& kernels, const float* logits, size_t size, double temperature, size_t token) {
  if (!(temperature > 0.0 && temperature <= DBL_MAX)) {
    throw std::invalid_argument("token_probability: the temperature must be above 0");
  }
  const float largest = checked_max(kernels, logits, size);
  // A scale of infinity would turn the largest logit, at a distance of 0, into NaN.
  const float scale = static_cast<float>(std::min(1.0 / temperature, double{FLT_MAX}));
  const double total = kernels.sum_exp(logits, size, largest, scale);
  return std::exp((double{logits[token]} - double{largest}) / temperature) / total;
}

}  // namespace foredraft
