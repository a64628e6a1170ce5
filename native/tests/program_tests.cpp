// What must be refused, and what several threads do to a program. Choosing an instruction set.
#include <pthread.h>

#include <algorithm>
#include <cfenv>
#include <stdexcept>
#include <thread>

#include "tests/scenario.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foredraft {
namespace testing {
namespace {

using Bad = std::invalid_argument;

// What threads get from the least generous C library; sanitizers put guards between the variables of a function.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallStack = 1024 * 1024;
#else
constexpr size_t kSmallStack = 128 * 1024;
#endif

std::shared_ptr<const uint8_t> table_of(size_t values) {
  const auto kept = std::make_shared<std::vector<float>>(values, 0.5f);
  return {kept, reinterpret_cast<const uint8_t*>(kept->data())};
}

Linear identity(size_t width, ThreadPool& pool, float scale = 1.0f) {
  std::vector<float> values(width * width, 0.0f);
  for (size_t i = 0; i < width; ++i) values[i * width + i] = scale;
  const auto* const data = reinterpret_cast<const uint8_t*>(values.data());
  return {std::make_shared<Weight>(Format::F32, width, width, data, pool), {}, -1};
}

void test_recording() {
  const auto pool = std::make_shared<ThreadPool>(1);
  Program p(pool, select_kernels(""));
  CHECK(throws<Bad>([&] { p.embed(Format::Q4_0, table_of(99), 4, 33, 1.0f); }));
  const int x = p.embed(Format::F32, table_of(160), 5, 32, 1.0f);
  CHECK(throws<Bad>([&] { p.embed(Format::F32, table_of(320), 10, 32, 1.0f); }));
  const int chosen = p.select(x);
  CHECK(throws<Bad>([&] { p.select(chosen); }));
  CHECK(throws<Bad>([&] { p.select(99); }));
  CHECK(throws<Bad>([&] { p.rms_norm(x, {}, 0.0f, -1); }));
  CHECK(throws<Bad>([&] { p.rms_norm(x, std::vector<float>(31, 1.0f), 0.0f, -1); }));
  CHECK(throws<Bad>([&] { p.rms_norm(x, std::vector<float>(32, 1.0f), 0.0f, chosen); }));
  CHECK(throws<Bad>([&] { p.linear(x, {}, false); }));
  CHECK(throws<Bad>([&] { p.linear(x, {Linear{}}, false); }));
  CHECK(throws<Bad>([&] { p.linear(x, {identity(16, *pool)}, false); }));
  CHECK(throws<Bad>([&] {
    Linear m = identity(32, *pool);
    m.residual = chosen;
    p.linear(x, {m}, false);
  }));
  CHECK(throws<Bad>([&] {
    Linear m = identity(32, *pool);
    m.bias.assign(31, 0.0f);
    p.linear(x, {m}, false);
  }));
  CHECK(throws<Bad>([&] { p.gated(x, chosen, Activation::Silu); }));
  const int rope = p.add_rope_table(std::vector<float>(8, 1.0f), 1.0f);
  for (int heads : {0, -1, 3, 4}) CHECK(throws<Bad>([&] { p.rope(x, heads, rope, RopeStyle::Neox); }));
  CHECK(throws<Bad>([&] { p.rope(x, 2, rope + 1, RopeStyle::Neox); }));
  CHECK(throws<Bad>([&] { p.rope(chosen, 2, rope, RopeStyle::Neox); }));
  CHECK(throws<Bad>([&] { p.attention(x, x, x, {0, 2, 2, 8, 0, 1.0f, 0.0f}); }));
  CHECK(throws<Bad>([&] { p.attention(x, x, x, {0, 2, 0, 16, 0, 1.0f, 0.0f}); }));
  CHECK(throws<Bad>([&] { p.attention(x, x, x, {0, -2, -2, 16, 0, 1.0f, 0.0f}); }));
  CHECK(throws<Bad>([&] { p.attention(x, x, x, {-1, 2, 2, 16, 0, 1.0f, 0.0f}); }));
  CHECK(throws<Bad>([&] { p.attention(chosen, x, x, {0, 2, 2, 16, 0, 1.0f, 0.0f}); }));
  CHECK(throws<Bad>([&] { p.run(Batch()); }));
  p.keep(x);
  p.finish();
  CHECK(throws<Bad>([&] { p.finish(); }));
  CHECK(throws<Bad>([&] { p.keep(chosen); }));
  CHECK(throws<Bad>([&] { p.rope(x, 2, rope, RopeStyle::Neox); }));
  CHECK(throws<Bad>([&] { p.add_rope_table({}, 1.0f); }));
  CHECK(throws<Bad>([&] { p.result(x); }));  // nothing has been run
  CHECK(throws<Bad>([&] { p.result(chosen); }));
  CHECK(throws<Bad>([&] { p.result(-1); }));
}

// One attention over the embedding itself.
Model small_model(int threads) {
  const auto pool = std::make_shared<ThreadPool>(threads);
  Model m{std::make_shared<Program>(pool, select_kernels("")), {1, 2, 16}, 5, 0};
  Random random(3);
  const auto table = std::make_shared<std::vector<float>>(random.normals(5 * 32));
  const int x = m.program->embed(Format::F32, {table, reinterpret_cast<const uint8_t*>(table->data())}, 5, 32, 1.0f);
  const int mixed = m.program->attention(x, x, x, {0, 2, 2, 16, 0, 0.3f, 0.0f});
  m.result = m.program->linear(m.program->select(mixed), {identity(32, *pool)}, false)[0];
  m.program->keep(m.result);
  m.program->finish();
  return m;
}

void test_batches() {
  const Model model = small_model(1);
  Random random(1);
  Cache cache(model.cache, 3, random);
  struct Row {
    int32_t token, position, slot, prefix;
    std::vector<int32_t> tail;
  };
  const auto run = [&](const Row& row) {
    BatchRows rows;
    rows.set_tables({{0, 2}});
    rows.add(row.token, row.position, 0, row.slot, row.prefix, row.tail);
    model.program->run(rows.batch(cache));
  };
  run({4, 0, 0, 1, {}});
  run({4, 20, 16, 20, {16}});
  const int32_t most = std::numeric_limits<int32_t>::max(), least = std::numeric_limits<int32_t>::min();
  for (const Row& row : std::vector<Row>{{5, 0, 0, 1, {}}, {-1, 0, 0, 1, {}}, {0, 0, 48, 1, {}}, {0, 0, -1, 1, {}},
                                         {0, 1, 0, 1, {}}, {0, -1, 0, 0, {}}, {0, 0, 0, 0, {48}}, {0, 0, 0, 0, {-1}},
                                         {0, 32, 0, 33, {}}, {0, 0, 0, -1, {0, 1}}, {0, most, 0, most, {0}},
                                         {0, most, 0, least, {}}, {0, 0, 0, 0, {}}, {0, least, 0, least, {0}}}) {
    CHECK_SAYING(throws<Bad>([&] { run(row); }), std::to_string(row.token) + " at " + std::to_string(row.position));
  }
  BatchRows rows;
  rows.set_tables({{3}});
  rows.add(0, 0, 0, 0, 1, {});
  CHECK(throws<Bad>([&] { model.program->run(rows.batch(cache)); }));  // a block that is not there
  CHECK(throws<Bad>([&] { model.program->check_cache(0, 2, 256); }));
  CHECK(throws<Bad>([&] { model.program->check_cache(1, 1, 256); }));
  CHECK(throws<Bad>([&] { model.program->check_cache(1, 2, 128); }));
  model.program->check_cache(1, 2, 256);
}

// A row may be selected more than once, or none; memory handed out earlier stays readable.
void test_selected_rows() {
  const Model model = small_model(1);
  Random random(1);
  Cache cache(model.cache, 1, random);
  BatchRows rows;
  rows.set_tables({{0}});
  rows.add(3, 0, 0, 0, 1, {});
  Batch batch = rows.batch(cache);
  model.program->run(batch);
  const auto before = model.program->result(model.result);
  const std::vector<float> copy(before.get(), before.get() + 32);
  const std::vector<int32_t> repeated(40, 0);
  batch.selected_rows = repeated.data();
  batch.num_selected = repeated.size();
  model.program->run(batch);
  const auto after = model.program->result(model.result);
  CHECK(model.program->result_rows(model.result) == 40);
  for (size_t i = 0; i < 40; ++i) CHECK(same_bits(after.get() + 32 * i, copy.data(), 32));
  CHECK(same_bits(before.get(), copy.data(), 32));
  const int32_t outside = 1;
  batch.selected_rows = &outside;
  batch.num_selected = 1;
  CHECK(throws<Bad>([&] { model.program->run(batch); }));
  batch.num_selected = 0;
  model.program->run(batch);
  CHECK(model.program->result_rows(model.result) == 0);
}

void test_runs_from_two_threads() {
  const Model model = small_model(2);
  Random random(8);
  const auto requests = random_requests(random, 2, 40, 9, model.vocabulary);
  const auto expected = run_together(model, requests, 20, random);
  // One program, each thread with a cache of its own; results are read when both are done.
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Random own(static_cast<uint64_t>(t));
      Cache cache(model.cache, 4, own);
      for (int32_t i = 0; i < 200; ++i) {
        BatchRows rows;
        rows.set_tables({{2, 1, 0, 3}});
        for (int32_t n = 0; n <= i % 40; ++n) rows.add(n % 5, n, 0, (2 - n / 16) * 16 + n % 16, n + 1, {});
        model.program->run(rows.batch(cache));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  check_same_rows(run_together(model, requests, 20, random), expected, "after runs from two threads");
}

// How the caller's thread rounds has no influence, and stays as it was.
void test_float_environment() {
  for (int threads : {1, 3}) {
    const Model model = small_model(threads);
    Random random(6);
    const auto requests = random_requests(random, 2, 40, 9, model.vocabulary);
    const auto expected = run_together(model, requests, 20, random);
    CHECK(std::fesetround(FE_UPWARD) == 0);
    const auto found = run_together(model, requests, 20, random);
    const int rounding = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(rounding == FE_UPWARD);
    check_same_rows(found, expected, "rounding upwards");
  }
}

// Makes the processor take subnormal numbers for zero in this thread, or not. Returns whether it did before.
bool flush_subnormal_numbers(bool flush) {
#if defined(__x86_64__)
  constexpr unsigned kFlush = 0x8040;  // results, and operands
  const unsigned before = _mm_getcsr();
  _mm_setcsr(flush ? before | kFlush : before & ~kFlush);
  return (before & kFlush) == kFlush;
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = 1u << 24;
  uint64_t before;
  asm volatile("mrs %0, fpcr" : "=r"(before));
  asm volatile("msr fpcr, %0" : : "r"(flush ? before | kFlush : before & ~kFlush));
  return (before & kFlush) != 0;
#else
  return flush;
#endif
}

// Nor has what becomes of subnormal numbers there.
void test_subnormal_numbers() {
  for (int threads : {1, 3}) {
    for (const Kernels* kernels : all_kernels()) {
      const auto pool = std::make_shared<ThreadPool>(threads);
      Program p(pool, *kernels);
      const int x = p.embed(Format::F32, table_of(5 * 64), 5, 64, 1e-19f);
      Linear tiny = identity(64, *pool, 1e-20f);
      const int result = p.linear(x, {tiny}, false)[0];
      p.keep(result);
      p.finish();
      Random random(1);
      Cache cache({1, 1, 16}, 1, random);
      BatchRows rows;
      rows.set_tables({{0}});
      for (int32_t n = 0; n < 5; ++n) rows.add(n, n, 0, n, n + 1, {});
      flush_subnormal_numbers(true);
      p.run(rows.batch(cache));
      const bool kept = flush_subnormal_numbers(false);
      CHECK(kept);
      for (size_t i = 0; i < 5 * 64; ++i) CHECK(p.result(result)[static_cast<std::ptrdiff_t>(i)] > 4e-40f);
    }
  }
}

// A precise product of many rows needs the most room of all operations.
void test_small_stacks() {
  Random random(4);
  const auto pool = std::make_shared<ThreadPool>(1);
  Model m{std::make_shared<Program>(pool, select_kernels("")), {1, 2, 16}, 5, 0};
  const auto table = std::make_shared<std::vector<float>>(random.normals(5 * 2048));
  const int x = m.program->embed(Format::F32, {table, reinterpret_cast<const uint8_t*>(table->data())}, 5, 2048, 1.0f);
  const auto data = random_weight(Format::Q4_K, 128, 2048, random);
  m.result = m.program->linear(x, {{std::make_shared<Weight>(Format::Q4_K, 128, 2048, data.data(), *pool), {}, -1}}, true)[0];
  m.program->keep(m.result);
  m.program->finish();
  Cache cache(m.cache, 4, random);
  BatchRows rows;
  rows.set_tables({{0, 1, 2, 3}});
  for (int32_t n = 0; n < 64; ++n) rows.add(n % 5, n, 0, n, n + 1, {});
  struct Run {
    Program& program;
    Batch batch;
  } run{*m.program, rows.batch(cache)};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, kSmallStack) == 0);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    const Run& own = *static_cast<Run*>(argument);
    own.program.run(own.batch);
    return nullptr;
  };
  CHECK(pthread_create(&thread, &attributes, body, &run) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
  CHECK(m.program->result_rows(m.result) == 64);
}

}  // namespace

void test_program_checks() {
  test_recording();
  test_batches();
  test_selected_rows();
  test_runs_from_two_threads();
  test_small_stacks();
  test_float_environment();
  test_subnormal_numbers();
}

void test_selection() {
  const auto names = available_kernels();
  CHECK(!names.empty() && names.back() == "portable");
  for (const std::string& name : names) CHECK(select_kernels(name).name == name);
  CHECK(&select_kernels("") == &select_kernels(names.front()));
  for (const char* name : {"avx512", "avx2", "neon", "sse9", "AVX2"}) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    std::string message;
    try {
      select_kernels(name);
    } catch (const Bad& error) {
      message = error.what();
    }
    CHECK(message.find(name) != std::string::npos);
#if defined(FOREDRAFT_ARM)
    const bool only_lacking = std::string(name) == "neon";
    CHECK((message.find("this processor lacks") != std::string::npos) == only_lacking);
#endif
    CHECK(message.find("choose from: ") != std::string::npos && message.find("portable") != std::string::npos);
  }
}

}  // namespace testing
}  // namespace foredraft
