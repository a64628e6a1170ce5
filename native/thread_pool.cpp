#include "thread_pool.h"

#include <unistd.h>

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foredraft {
namespace {

constexpr int kSpins = 4000;  // some tens of microseconds

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// A region ends when its tasks are done, not when every worker has looked at it: a worker that sleeps or is held up
// by the system must not delay the others. Such a worker may come late, so a task is claimed together with the number
// of its region, in one word: a late claim fails, and what the worker has read of the region is not used. A region's
// number is odd while it is being set up, so that nothing of it can be mistaken for a part of the one before.
struct ThreadPool::Shared {
  std::atomic<Function> function{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<uint32_t> num_tasks{0};
  // Region number in the upper half; in the lower, how many tasks were claimed from the front and from the back.
  alignas(64) std::atomic<uint64_t> next{0};
  static constexpr uint64_t kFront = uint64_t{1} << 16, kBack = 1;
  alignas(64) std::atomic<uint32_t> num_done{0};
  alignas(64) std::atomic<int> num_asleep{0};
  std::atomic<bool> stopping{false};
  std::mutex sleep;
  std::condition_variable wake;

  static uint32_t region_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  static uint32_t front_of(uint64_t word) { return static_cast<uint32_t>(word) >> 16; }
  static uint32_t back_of(uint64_t word) { return static_cast<uint32_t>(word) & 0xffff; }

  void work(uint32_t region, int thread) {
    // Acquire: who sees a later region's values also sees its number, and so fails to claim.
    const Function body = function.load(std::memory_order_acquire);
    void* const its_context = context.load(std::memory_order_acquire);
    const uint32_t end = num_tasks.load(std::memory_order_acquire);
    const bool from_front = thread % 2 == 0;
    uint64_t word = next.load(std::memory_order_acquire);
    uint32_t done = 0;
    while (region_of(word) == region && front_of(word) + back_of(word) < end) {
      const uint64_t claimed = word + (from_front ? kFront : kBack);
      if (!next.compare_exchange_weak(word, claimed, std::memory_order_acq_rel)) continue;
      body(its_context, from_front ? front_of(word) : end - 1 - back_of(word), thread);
      ++done;
      word = next.load(std::memory_order_acquire);
    }
    if (done > 0) num_done.fetch_add(done, std::memory_order_release);
  }

  bool is_open(uint32_t region, uint32_t seen) const { return region != seen && region % 2 == 0; }

  // Returns the number of an open region other than `seen`, as soon as there is one.
  uint32_t await(uint32_t seen) {
    uint32_t region = seen;
    for (int spin = 0; spin < kSpins; ++spin) {
      region = region_of(next.load(std::memory_order_acquire));
      if (is_open(region, seen)) return region;
      pause();
    }
    std::unique_lock<std::mutex> lock(sleep);
    num_asleep.fetch_add(1);
    wake.wait(lock, [&] { return is_open(region = region_of(next.load()), seen); });
    num_asleep.fetch_sub(1);
    return region;
  }

  void loop(int thread) {
    std::fesetenv(FE_DFL_ENV);  // a new thread takes over the rounding and more from the one that starts it
    for (uint32_t region = 0;;) {
      region = await(region);
      if (stopping.load(std::memory_order_acquire)) return;
      work(region, thread);
    }
  }

  // Opens a region and wakes who sleeps. Returns its number.
  uint32_t open(Function body, void* its_context, uint32_t tasks) {
    const uint32_t region = region_of(next.load(std::memory_order_relaxed)) + 2;
    next.store(uint64_t{region - 1} << 32);
    function.store(body, std::memory_order_release);
    context.store(its_context, std::memory_order_release);
    num_tasks.store(tasks, std::memory_order_release);
    num_done.store(0, std::memory_order_relaxed);
    next.store(uint64_t{region} << 32);  // sequentially consistent: pairs with the sleeper's check under the lock
    if (num_asleep.load() > 0) {
      std::lock_guard<std::mutex> lock(sleep);
      wake.notify_all();
    }
    return region;
  }
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {}

ThreadPool::~ThreadPool() {
  if (!shared_) return;
  if (owner_ != getpid()) {  // a forked child that never ran a region: the threads are not in this process
    abandon_workers();
    return;
  }
  shared_->stopping.store(true);
  shared_->open(nullptr, nullptr, 0);
  for (auto& worker : workers_) worker.join();
}

// After a fork: what the parent's threads held cannot be trusted, nor freed.
void ThreadPool::abandon_workers() {
  for (auto& worker : workers_) worker.detach();
  workers_.clear();
  (void)shared_.release();
}

void ThreadPool::start_workers() {
  if (shared_) abandon_workers();
  shared_ = std::make_unique<Shared>();
  owner_ = getpid();
  for (int thread = 1; thread < num_threads_; ++thread) {
    workers_.emplace_back([shared = shared_.get(), thread] { shared->loop(thread); });
  }
}

void ThreadPool::run(size_t num_tasks, Function function, void* context) {
  if (num_threads_ == 1 || num_tasks <= 1) {
    for (size_t task = 0; task < num_tasks; ++task) function(context, task, 0);
    return;
  }
  std::lock_guard<std::mutex> region_lock(regions_);
  if (!shared_ || owner_ != getpid()) start_workers();
  Shared& s = *shared_;
  s.work(s.open(function, context, static_cast<uint32_t>(num_tasks)), 0);
  for (int spin = 0; s.num_done.load(std::memory_order_acquire) != num_tasks; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // a worker was held up in the middle of a task; let it run
    }
  }
}

}  // namespace foredraft
