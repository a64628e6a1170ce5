// A whole decoder, in every weight format: the logits of a node have the same bits however it is run.
#include "tests/scenario.h"

namespace foredraft {
namespace testing {
namespace {

constexpr int kVocabulary = 70;
constexpr size_t kWidth = 256, kFfnWidth = 512, kHead = 32;
constexpr int kHeads = 8, kKvHeads = 2, kLayers = 2;

// Two layers, one with a window and gelu; the weights and with them the formats follow from the seed.
class Recorder {
 public:
  Recorder(const Kernels& k, int threads, Format format, bool precise)
      : pool_(std::make_shared<ThreadPool>(threads)), program_(std::make_shared<Program>(pool_, k)), format_(format),
        precise_(precise), random_(77) {}

  Model record() {
    Program& p = *program_;
    const auto table = std::make_shared<std::vector<uint8_t>>(random_weight(format_, kVocabulary, kWidth, random_));
    int x = p.embed(format_, {table, table->data()}, kVocabulary, kWidth, 30.0f);
    std::vector<float> frequencies;
    for (size_t i = 0; i < kHead / 2; ++i) {
      frequencies.push_back(std::pow(10000.0f, -static_cast<float>(2 * i) / kHead));
    }
    const int rope = p.add_rope_table(frequencies, 1.0f);
    for (int layer = 0; layer < kLayers; ++layer) x = record_layer(x, layer, rope);
    const int last = p.rms_norm(p.select(x), norm(kWidth), 1e-5f, -1);
    const int logits = p.linear(last, {matrix(kVocabulary, kWidth)}, precise_)[0];
    p.keep(logits);
    p.finish();
    return {program_, {kLayers, kKvHeads, kHead}, kVocabulary, logits};
  }

 private:
  int record_layer(int x, int layer, int rope) {
    Program& p = *program_;
    const int normed = p.rms_norm(x, norm(kWidth), 1e-5f, -1);
    const size_t kv_width = kKvHeads * kHead;
    auto qkv = p.linear(normed, {matrix(kWidth, kWidth), matrix(kv_width, kWidth), matrix(kv_width, kWidth)}, precise_);
    if (layer == 1) qkv[0] = p.rms_norm(qkv[0], norm(kHead), 1e-5f, -1);  // a norm of each head, as Qwen3 has it
    const RopeStyle style = layer == 0 ? RopeStyle::Neox : RopeStyle::Interleaved;
    p.rope(qkv[0], kHeads, rope, style);
    p.rope(qkv[1], kKvHeads, rope, style);
    const AttentionShape shape{layer, kHeads, kKvHeads, kHead, layer == 0 ? 0 : 21, 0.2f, 0.0f};
    const int mixed = p.attention(qkv[0], qkv[1], qkv[2], shape);
    Linear out = matrix(kWidth, kWidth);
    out.residual = x;
    const int middle = p.linear(mixed, {out}, precise_)[0];
    const int second = p.rms_norm(middle, norm(kWidth), 1e-5f, -1);
    const auto gate_up = p.linear(second, {matrix(kFfnWidth, kWidth), matrix(kFfnWidth, kWidth)}, precise_);
    const int gated = p.gated(gate_up[0], gate_up[1], layer == 0 ? Activation::Silu : Activation::GeluTanh);
    const int down = p.linear(gated, {matrix(kWidth, kFfnWidth)}, precise_)[0];
    return p.rms_norm(down, norm(kWidth), 1e-5f, middle);  // a norm behind the block, as Gemma has it
  }

  Linear matrix(size_t outputs, size_t inputs) {
    const auto data = random_weight(format_, outputs, inputs, random_);
    auto weight = std::make_shared<Weight>(format_, outputs, inputs, data.data(), *pool_);
    return {std::move(weight), random_.normals(outputs, 0.1f), -1};
  }

  std::vector<float> norm(size_t width) { return random_.normals(width); }

  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<Program> program_;
  Format format_;
  bool precise_;
  Random random_;
};

}  // namespace

void test_decoder(const Kernels& k) {
  Random random(41);
  for (int i = 0; i < kNumFormats; ++i) {
    const Format format = static_cast<Format>(i);
    const bool precise = i % 2 == 1;
    const Model alone = Recorder(k, 1, format, precise).record();
    const Model threaded = Recorder(k, 1 + i % 3, format, precise).record();
    const auto requests = random_requests(random, random.range(1, 3), 30, 9, kVocabulary);
    const auto expected = run_one_by_one(alone, requests, random);
    for (int chunk : {7, 64}) {
      check_same_rows(run_together(threaded, requests, chunk, random), expected, info(format).name);
    }
  }
}

}  // namespace testing
}  // namespace foredraft
