#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include <ballast/error.h>
#include <ballast/work.h>

#include "base/parallel.h"

namespace ballast {

// Reports progress and returns false if the work must stop. For long work that does not run in a BlockLoop.
inline bool report(const WorkOptions& work, std::uint64_t done, std::uint64_t total, std::string_view what) {
  if (work.stop && work.stop()) return false;
  return !work.progress || work.progress(done, total, what);
}

// Progress that one finished block adds.
struct BlockDone {
  std::uint64_t bytes = 0;
  std::string_view what;
};

// The loop that all long work runs in. Calls do_block(worker, block), which returns a Result<void>, for every block below
// `count`, on several threads and in no particular order. The first failure stops the loop and is returned. After each block,
// done(block) returns the progress to report. The loop is cancelled if the progress callback returns false or the stop token
// returns true.
struct BlockLoop {
  const WorkOptions& work;
  std::uint64_t total = 0;   // bytes; 0: unknown
  std::uint64_t before = 0;  // bytes done by earlier loops of the same work
  unsigned threads = work.threads;

  template <class DoBlock, class Done>
  Result<void> run(std::size_t count, DoBlock&& do_block, Done&& done) const {
    const auto cancelled = [] { return std::unexpected(Error{.code = Errc::kCancelled, .message = "cancelled"}); };
    std::mutex mutex;
    Result<void> outcome;
    std::uint64_t bytes = before;
    parallel_for(count, threads, [&](unsigned worker, std::size_t block) {
      Result<void> result = work.stop && work.stop() ? cancelled() : do_block(worker, block);
      if (result && !work.progress) return true;
      const std::scoped_lock lock(mutex);
      if (!result && outcome) outcome = std::move(result);
      if (!outcome) return false;
      const BlockDone added = done(block);
      bytes += added.bytes;
      if (!work.progress(bytes, total, added.what)) outcome = cancelled();
      return outcome.has_value();
    });
    return outcome;
  }
};

inline constexpr std::uint64_t kDefaultMemory = std::uint64_t{384} << 20;

inline std::uint64_t memory_limit(const WorkOptions& work) { return work.memory_limit != 0 ? work.memory_limit : kDefaultMemory; }

// The number of threads whose buffers fit into `available` bytes: at least 1, at most `requested`.
inline unsigned threads_within(std::uint64_t available, std::uint64_t bytes_per_thread, unsigned requested) {
  const std::uint64_t most = bytes_per_thread == 0 ? available : available / bytes_per_thread;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, thread_count(requested)));
}

}  // namespace ballast
