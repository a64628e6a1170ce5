#include "thread_pool.h"

#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace foredraft {
namespace {

constexpr int kSpins = 20000;  // some tens of microseconds

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Shared {
  Function function = nullptr;
  void* context = nullptr;
  size_t num_tasks = 0;
  alignas(64) std::atomic<size_t> next_task{0};
  alignas(64) std::atomic<int> num_busy{0};
  alignas(64) std::atomic<uint64_t> generation{0};
  std::atomic<int> num_asleep{0};
  std::atomic<bool> stopping{false};
  std::mutex sleep;
  std::condition_variable wake;

  void work(int thread) {
    for (size_t task = next_task.fetch_add(1, std::memory_order_relaxed); task < num_tasks;
         task = next_task.fetch_add(1, std::memory_order_relaxed)) {
      function(context, task, thread);
    }
  }

  // Returns when the generation has moved on from `seen`.
  void await(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen) return;
      pause();
    }
    std::unique_lock<std::mutex> lock(sleep);
    num_asleep.fetch_add(1);
    wake.wait(lock, [&] { return generation.load() != seen; });
    num_asleep.fetch_sub(1);
  }

  void loop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      await(seen);
      seen = generation.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      work(thread);
      num_busy.fetch_sub(1, std::memory_order_release);
    }
  }

  void publish() {
    generation.fetch_add(1);  // sequentially consistent: pairs with the sleeper's check under the lock
    if (num_asleep.load() > 0) {
      std::lock_guard<std::mutex> lock(sleep);
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {}

ThreadPool::~ThreadPool() {
  if (!shared_) return;
  if (owner_ != getpid()) {  // a forked child that never ran a region: the threads are not in this process
    for (auto& worker : workers_) worker.detach();
    shared_.release();
    return;
  }
  shared_->stopping.store(true);
  shared_->publish();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::start_workers() {
  if (shared_) {  // after a fork: what the parent's threads held cannot be trusted, nor freed
    for (auto& worker : workers_) worker.detach();
    workers_.clear();
    shared_.release();
  }
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
  std::lock_guard<std::mutex> region(regions_);
  if (!shared_ || owner_ != getpid()) start_workers();
  Shared& s = *shared_;
  s.function = function;
  s.context = context;
  s.num_tasks = num_tasks;
  s.next_task.store(0, std::memory_order_relaxed);
  s.num_busy.store(num_threads_ - 1, std::memory_order_relaxed);
  s.publish();
  s.work(0);
  for (int spin = 0; s.num_busy.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // a worker was descheduled; let it run
    }
  }
}

}  // namespace foredraft
