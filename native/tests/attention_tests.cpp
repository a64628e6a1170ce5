// Attention over paged blocks and draft trees: equal bits however it is run, and close to double precision.
#include <algorithm>

#include "half.h"
#include "tests/scenario.h"

namespace foredraft {
namespace testing {
namespace {

constexpr int kVocabulary = 29;
constexpr size_t kWidth = 32;

struct Heads {
  int num_heads, num_kv_heads, head_width, window;
  float scale, softcap;
};

std::shared_ptr<const uint8_t> shared_bytes(const std::vector<float>& values) {
  const auto kept = std::make_shared<std::vector<float>>(values);
  return {kept, reinterpret_cast<const uint8_t*>(kept->data())};
}

// Embedding, three projections, attention: keys and values are functions of the token alone.
struct AttentionModel {
  Model model;
  Heads heads;
  std::vector<double> projected[3];

  AttentionModel(const Kernels& k, const Heads& its_heads, int threads, Random& random) : heads(its_heads) {
    const size_t head = static_cast<size_t>(heads.head_width);
    const size_t kv_width = head * static_cast<size_t>(heads.num_kv_heads);
    const size_t widths[3] = {head * static_cast<size_t>(heads.num_heads), kv_width, kv_width};
    auto pool = std::make_shared<ThreadPool>(threads);
    model.program = std::make_shared<Program>(pool, k);
    const auto table = shared_bytes(random.normals(kVocabulary * kWidth));
    const int x = model.program->embed(Format::F32, table, kVocabulary, kWidth, 1.0f);
    std::vector<Linear> matrices;
    for (int i = 0; i < 3; ++i) {
      const auto weight = random.normals(widths[i] * kWidth, 0.4f);
      matrices.push_back({std::make_shared<Weight>(Format::F32, widths[i], kWidth,
                                                   reinterpret_cast<const uint8_t*>(weight.data()), *pool), {}, -1});
    }
    const auto qkv = model.program->linear(x, std::move(matrices), false);
    model.result = model.program->attention(
        qkv[0], qkv[1], qkv[2],
        {0, heads.num_heads, heads.num_kv_heads, heads.head_width, heads.window, heads.scale, heads.softcap});
    for (int buffer : {model.result, qkv[0], qkv[1], qkv[2]}) model.program->keep(buffer);
    model.program->finish();
    model.cache = {1, static_cast<size_t>(heads.num_kv_heads), head};
    model.vocabulary = kVocabulary;
    read_projections(qkv, random);
  }

  void read_projections(const std::vector<int>& qkv, Random& random) {
    Cache cache(model.cache, kVocabulary / kBlockPositions + 1, random);
    BatchRows rows;
    rows.set_tables({{0, 1}});
    for (int32_t token = 0; token < kVocabulary; ++token) rows.add(token, token, 0, token, token + 1, {});
    model.program->run(rows.batch(cache));
    for (int i = 0; i < 3; ++i) {
      const size_t size = kVocabulary * model.program->width(qkv[static_cast<size_t>(i)]);
      const auto data = model.program->result(qkv[static_cast<size_t>(i)]);
      for (size_t j = 0; j < size; ++j) {
        projected[i].push_back(i == 0 ? data[static_cast<std::ptrdiff_t>(j)]
                                      : half_to_float(float_to_half(data[static_cast<std::ptrdiff_t>(j)])));
      }
    }
  }

  // Query, key (1) or value (2) of a token, as the program computes it.
  std::vector<double> project(int which, int32_t token) const {
    const auto& all = projected[which];
    const size_t width = all.size() / kVocabulary;
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * width);
    return {begin, begin + static_cast<std::ptrdiff_t>(width)};
  }

  // Attention of the last of `tokens` over all that the window lets it see.
  std::vector<double> exact(const std::vector<int32_t>& tokens) const {
    const size_t head = static_cast<size_t>(heads.head_width), length = tokens.size();
    const size_t window = static_cast<size_t>(heads.window);
    const size_t oldest = window > 0 && length > window ? length - window : 0;
    const auto query = project(0, tokens.back());
    std::vector<double> out(query.size(), 0.0);
    std::vector<std::vector<double>> keys, values;
    for (size_t p = oldest; p < length; ++p) {
      keys.push_back(project(1, tokens[p]));
      values.push_back(project(2, tokens[p]));
    }
    for (size_t h = 0; h < static_cast<size_t>(heads.num_heads); ++h) {
      const size_t kv = h / static_cast<size_t>(heads.num_heads / heads.num_kv_heads);
      std::vector<double> scores;
      for (const auto& key : keys) {
        double s = 0.0;
        for (size_t e = 0; e < head; ++e) s += query[h * head + e] * key[kv * head + e];
        s *= heads.scale;
        if (heads.softcap > 0.0f) s = heads.softcap * std::tanh(s / heads.softcap);
        scores.push_back(s);
      }
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0.0;
      for (double& s : scores) total += s = std::exp(s - largest);
      for (size_t i = 0; i < scores.size(); ++i) {
        for (size_t e = 0; e < head; ++e) out[h * head + e] += scores[i] / total * values[i][kv * head + e];
      }
    }
    return out;
  }
};

void check_against_double(const AttentionModel& a, const std::vector<Request>& requests, const NodeRows& rows) {
  for (size_t r = 0; r < requests.size(); ++r) {
    for (size_t n = 0; n < requests[r].nodes.size(); ++n) {
      const Request& request = requests[r];
      std::vector<int32_t> tokens = request.prefix;
      for (int node : request.path(static_cast<int>(n))) tokens.push_back(request.nodes[static_cast<size_t>(node)]);
      const auto exact = a.exact(tokens);
      double error = 0.0, largest = 0.0;
      for (size_t i = 0; i < exact.size(); ++i) {
        error = std::max(error, std::abs(exact[i] - rows[r][n][i]));
        largest = std::max(largest, std::abs(exact[i]));
      }
      CHECK_SAYING(error <= 5e-6 * largest + 1e-7, std::to_string(1e6 * error / largest) + " millionths");
    }
  }
}

void test_heads(const Kernels& k, const Heads& heads, Random& random) {
  const AttentionModel one(k, heads, 1, random);
  const std::string detail = "heads " + std::to_string(heads.num_heads) + "/" + std::to_string(heads.num_kv_heads) +
                             " width " + std::to_string(heads.head_width) + " window " + std::to_string(heads.window) +
                             " softcap " + std::to_string(heads.softcap);
  for (int round = 0; round < 3; ++round) {
    const auto requests = random_requests(random, random.range(1, 4), 70, 14, kVocabulary);
    const auto alone = run_one_by_one(one.model, requests, random);
    check_against_double(one, requests, alone);
    for (int chunk : {1, 7, 64}) check_same_rows(run_together(one.model, requests, chunk, random), alone, detail);
  }
}

void test_threads(const Kernels& k, Random& random) {
  for (int threads : {2, 3, 8}) {
    Random same(99);
    const AttentionModel a(k, {6, 2, 32, 0, 0.2f, 0.0f}, 1, same);
    Random again(99);
    const AttentionModel b(k, {6, 2, 32, 0, 0.2f, 0.0f}, threads, again);
    for (int round = 0; round < 4; ++round) {
      const auto requests = random_requests(random, round + 1, 60, 12, kVocabulary);
      const auto alone = run_one_by_one(a.model, requests, random);
      check_same_rows(run_together(b.model, requests, 50, random), alone, "threads");
    }
  }
}

}  // namespace

void test_attention(const Kernels& k) {
  Random random(31);
  for (int width : {16, 64, 80, 128, 256}) {
    test_heads(k, {2, 1, width, 0, 1.0f / std::sqrt(static_cast<float>(width)), 0.0f}, random);
  }
  for (int group = 1; group <= 8; ++group) test_heads(k, {2 * group, 2, 16, 0, 0.25f, 0.0f}, random);
  for (int window : {1, 5, 16, 17, 40}) test_heads(k, {3, 1, 16, window, 0.25f, 0.0f}, random);
  for (float softcap : {0.5f, 50.0f}) test_heads(k, {4, 2, 32, softcap > 1.0f ? 23 : 0, 0.2f, softcap}, random);
  test_threads(k, random);
}

}  // namespace testing
}  // namespace foredraft
