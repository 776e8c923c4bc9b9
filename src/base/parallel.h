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

// 0 means one thread per core.
inline unsigned thread_count(unsigned requested) {
  return requested != 0 ? requested : std::max(1U, std::thread::hardware_concurrency());
}

// Calls work(worker, i) for every i below `count`, on `threads` threads (0: one per core) and in no particular order. `worker` is
// the number of the thread, for per-thread buffers. A call that returns false or throws stops the loop; the exception is rethrown
// to the caller. If the system refuses to create threads, the existing ones do all the work.
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

// Like parallel_for(), for work that returns a Result<void>: the first failure stops the loop and is returned.
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
