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

// Reports progress; false if the work is to stop. Work that is not done in a BlockLoop calls it for every piece.
inline bool report(const WorkOptions& work, std::uint64_t done, std::uint64_t total, std::string_view what) {
  if (work.stop && work.stop()) return false;
  return !work.progress || work.progress(done, total, what);
}

// What a block adds to the progress of the work once it is done.
struct BlockDone {
  std::uint64_t bytes = 0;
  std::string_view what;
};

// The loop of all long work: calls do_block(worker, block), which returns a Result<void>, for every block below `count`, on
// several threads in no order. The first failure stops the rest and is the result. After each block, done(block) says what to
// report. Progress that returns false and a stop token that returns true cancel. A total of 0 means unknown.
struct BlockLoop {
  const WorkOptions& work;
  std::uint64_t total = 0;
  std::uint64_t before = 0;  // bytes that loops before this one have done
  unsigned threads = work.threads;

  template <class DoBlock, class Done>
  Result<void> run(std::size_t count, DoBlock&& do_block, Done&& done) const {
    const auto cancelled = [] { return std::unexpected(Error{.code = Errc::kCancelled, .message = "cancelled"}); };
    std::mutex mutex;
    Result<void> outcome;
    std::uint64_t bytes = before;
    parallel_for(count, threads, [&](unsigned worker, std::size_t block) {
      Result<void> made = work.stop && work.stop() ? cancelled() : do_block(worker, block);
      if (made && !work.progress) return true;
      const std::scoped_lock lock(mutex);
      if (!made && outcome) outcome = std::move(made);
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

// The limit in effect.
inline std::uint64_t memory_limit(const WorkOptions& work) { return work.memory_limit != 0 ? work.memory_limit : kDefaultMemory; }

// How many threads fit into what a memory limit leaves, at least 1.
inline unsigned threads_within(std::uint64_t room, std::uint64_t bytes_per_thread, unsigned asked) {
  const std::uint64_t most = bytes_per_thread == 0 ? room : room / bytes_per_thread;
  return static_cast<unsigned>(std::clamp<std::uint64_t>(most, 1, thread_count(asked)));
}

}  // namespace ballast
