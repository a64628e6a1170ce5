// A small pool of threads for short parallel regions.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace foredraft {

// The calling thread works too: a pool of size n starts n - 1 threads. Workers spin for a short while after a region,
// since the next one mostly follows at once, and then sleep. Regions of one pool run one after the other, from
// whichever thread; they must not be nested. After a fork the child starts workers of its own at its first region.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(task, thread) for every task in [0, num_tasks); thread < num_threads(). Whichever thread is free takes
  // the next task, those with even numbers from the front and the others from the back: so in regions that are alike a
  // thread meets about the same tasks, and finds in its cache what it wrote before. All are done when this returns.
  // `body` must not throw.
  template <class Body>
  void parallel_for(size_t num_tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    struct Part {
      Plain* body;
      size_t first;
    };
    for (size_t first = 0; first < num_tasks; first += kMostTasks) {
      Part part{&body, first};
      run(num_tasks - first < kMostTasks ? num_tasks - first : kMostTasks,
          [](void* context, size_t task, int thread) {
            const Part& own = *static_cast<Part*>(context);
            (*own.body)(own.first + task, thread);
          },
          &part);
    }
  }

 private:
  using Function = void (*)(void* context, size_t task, int thread);
  struct Shared;
  static constexpr size_t kMostTasks = 0xffff;  // of one region

  void run(size_t num_tasks, Function function, void* context);
  void start_workers();
  void abandon_workers();

  int num_threads_;
  pid_t owner_ = 0;
  std::mutex regions_;
  std::unique_ptr<Shared> shared_;
  std::vector<std::thread> workers_;
};

}  // namespace foredraft
