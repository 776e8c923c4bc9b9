#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ballast {

// Called from time to time during long work, one call at a time, from any thread: bytes done, bytes in total (0 if unknown), and
// the tensor or file at hand. Returning false cancels the work, which then fails with Errc::kCancelled.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view what)>;

// Asked often during long work and while waiting for a server, from any thread. Returning true ends the work with
// Errc::kCancelled. A std::stop_token fits: [token] { return token.stop_requested(); }.
using StopToken = std::function<bool()>;

// What all long work has in common.
struct WorkOptions {
  unsigned threads = 0;            // 0: one per core
  std::uint64_t memory_limit = 0;  // bytes of buffers, roughly; 0: 384 MiB
  Progress progress;
  StopToken stop;
};

}  // namespace ballast
