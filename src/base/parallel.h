#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// What a caller's number of threads stands for: 0 is one per core.
inline unsigned thread_count(unsigned asked) { return asked != 0 ? asked : std::max(1U, std::thread::hardware_concurrency()); }

// Calls work(worker, i) for every i below `count`, on `threads` threads (0: one per core), in no order. `worker` numbers the
// thread, for buffers of its own. A call that returns false stops the rest, and so does one that throws: its exception reaches
// the caller. Where the system gives no more threads, those there are do the work.
template <class Work>
void parallel_for(std::size_t count, unsigned threads, Work&& work) {
  threads = static_cast<unsigned>(std::min<std::size_t>(thread_count(threads), count));
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> stopped = false;
  std::mutex mutex;
  std::exception_ptr thrown;
  const auto run = [&](unsigned worker) noexcept {
    try {
      for (std::size_t i = next++; i < count && !stopped; i = next++) {
        if (!work(worker, i)) stopped = true;
      }
    } catch (...) {
      stopped = true;
      const std::scoped_lock lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (unsigned worker = 1; worker < threads; ++worker) others.emplace_back(run, worker);
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
    }
    if (threads > 0) run(0);
  }
  if (thrown) std::rethrow_exception(thrown);
}

// The same for work that gives a Result<void>: the first failure stops the rest, and is the result.
template <class Work>
Result<void> try_parallel(std::size_t count, unsigned threads, Work&& work) {
  std::mutex mutex;
  Result<void> result;
  parallel_for(count, threads, [&](unsigned worker, std::size_t i) {
    Result<void> done = work(worker, i);
    if (done) return true;
    const std::scoped_lock lock(mutex);
    if (result) result = std::move(done);
    return false;
  });
  return result;
}

}  // namespace ballast
