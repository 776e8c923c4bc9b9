#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ballast {

// Called during long work with the bytes done, the total (0 if unknown) and the current tensor or file. Calls come from any
// thread, one at a time. Return false to cancel; the work then fails with Errc::kCancelled.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view what)>;

// Polled often, from any thread, during long work and while waiting for a server. Return true to cancel; the work then fails with
// Errc::kCancelled. For a std::stop_token: [token] { return token.stop_requested(); }.
using StopToken = std::function<bool()>;

// Options of all long work.
struct WorkOptions {
  unsigned threads = 0;            // 0: one per core
  std::uint64_t memory_limit = 0;  // approximate bytes of buffers; 0: 384 MiB
  Progress progress;
  StopToken stop;
};

}  // namespace ballast
