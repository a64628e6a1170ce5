// The thread pool: every task runs once, whoever asks and whenever.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/check.h"
#include "thread_pool.h"

namespace foredraft {
namespace testing {
namespace {

// Runs a region and says whether each task ran exactly once, by a thread that exists.
bool region_is_whole(ThreadPool& pool, size_t num_tasks) {
  std::vector<int> runs(num_tasks, 0), threads(num_tasks, -1);
  pool.parallel_for(num_tasks, [&](size_t task, int thread) {
    ++runs[task];
    threads[task] = thread;
  });
  for (size_t i = 0; i < num_tasks; ++i) {
    if (runs[i] != 1 || threads[i] < 0 || threads[i] >= pool.num_threads()) return false;
  }
  return true;
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void test_regions() {
  Random random(1);
  for (int threads : {-1, 1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.num_threads() == (threads < 1 ? 1 : threads));
    for (int i = 0; i < 2000; ++i) CHECK(region_is_whole(pool, static_cast<size_t>(random.range(0, 40))));
    for (int i = 0; i < 5; ++i) {
      sleep_ms(3);  // long enough for the workers to fall asleep
      CHECK(region_is_whole(pool, 100));
    }
    CHECK(region_is_whole(pool, 140000));
  }
}

// Kind: a thread gets other tasks every time, and reads what another core has just written.
void test_tasks_are_taken_from_both_ends() {
  ThreadPool pool(2);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> threads(1 + static_cast<size_t>(round), -1);
    pool.parallel_for(threads.size(), [&](size_t task, int thread) { threads[task] = thread; });
    CHECK(std::is_sorted(threads.begin(), threads.end()));
  }
}

void test_ends() {
  for (int i = 0; i < 100; ++i) {
    ThreadPool unused(3);
    ThreadPool pool(3);
    if (i % 2 == 0) CHECK(region_is_whole(pool, 5));
    if (i % 10 == 0) sleep_ms(3);  // ended while asleep; else while spinning
  }
}

void test_several_callers() {
  ThreadPool pool(3), other(2);
  std::vector<int> good(4, 0);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < good.size(); ++c) {
    callers.emplace_back([&, c] {
      for (size_t i = 0; i < 500; ++i) good[c] += region_is_whole(c % 2 == 0 ? pool : other, i % 17) ? 1 : 0;
    });
  }
  for (auto& caller : callers) caller.join();
  for (int count : good) CHECK(count == 500);
  // A task may run a region of another pool.
  std::vector<char> inner(6, 0);
  pool.parallel_for(inner.size(), [&](size_t task, int) { inner[task] = region_is_whole(other, 9); });
  for (char whole : inner) CHECK(whole);
}

// Uses the pool in a forked child, which must end in time.
void check_child(ThreadPool& pool, bool use) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a child that hangs is killed, and so fails
    bool good = true;
    for (int i = 0; use && i < 200; ++i) good = good && region_is_whole(pool, 30);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(region_is_whole(pool, 30));
}

}  // namespace

void test_thread_pool_and_forks() {
  ThreadPool pool(3);
  check_child(pool, true);  // before the parent has started its workers
  check_child(pool, true);
  sleep_ms(3);
  check_child(pool, true);  // asleep
  check_child(pool, false);
  const pid_t child = fork();  // the child ends a pool whose threads it does not have
  if (child == 0) {
    alarm(60);
    {
      auto* const own = new ThreadPool(2);
      const bool whole = region_is_whole(*own, 4);
      if (!whole) _exit(1);
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        delete own;
        _exit(0);
      }
      int status = -1;
      waitpid(grandchild, &status, 0);
      delete own;
      _exit(status == 0 ? 0 : 1);
    }
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void test_thread_pool() {
  test_regions();
  test_tasks_are_taken_from_both_ends();
  test_ends();
  test_several_callers();
}

}  // namespace testing
}  // namespace foredraft
