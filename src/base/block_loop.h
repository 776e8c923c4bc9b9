#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include <ballast/error.h>
#include <ballast/progress.h>

#include "base/parallel.h"

namespace ballast {

// What a block adds to the progress of the work once it is done.
struct BlockDone {
  std::uint64_t bytes = 0;
  std::string_view what;
};

// The loop of all long work: calls work(worker, block), which gives a Result<void>, for every block below `count`, on several
// threads in no order. The first failure stops the rest and is the result. After each block, done(block) says what to report;
// a callback that returns false cancels. A total of 0 is an unknown one.
struct BlockLoop {
  unsigned threads = 0;  // 0: one per core
  std::uint64_t total = 0;
  std::uint64_t before = 0;  // bytes that loops before this one have done
  const Progress& progress;

  template <class Work, class Done>
  Result<void> run(std::size_t count, Work&& work, Done&& done) const {
    std::mutex mutex;
    Result<void> outcome;
    std::uint64_t bytes = before;
    parallel_for(count, threads, [&](unsigned worker, std::size_t block) {
      Result<void> made = work(worker, block);
      if (made && !progress) return true;
      const std::scoped_lock lock(mutex);
      if (!made && outcome) outcome = std::move(made);
      if (!outcome) return false;
      const BlockDone added = done(block);
      bytes += added.bytes;
      if (!progress(bytes, total, added.what)) outcome = std::unexpected(Error{.code = Errc::kCancelled, .message = "cancelled"});
      return outcome.has_value();
    });
    return outcome;
  }
};

// How many threads fit into what a memory limit leaves, at least 1.
inline unsigned threads_within(std::uint64_t room, std::uint64_t bytes_per_thread, unsigned asked) {
  const std::uint64_t most = bytes_per_thread == 0 ? room : room / bytes_per_thread;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, thread_count(asked)));
}

}  // namespace ballast
