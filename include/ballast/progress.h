#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace ballast {

// Called now and then during long work, one call at a time, from any thread: bytes done, bytes in all, what is at hand.
// Returning false cancels: the work stops soon with Errc::kCancelled.
using Progress = std::function<bool(std::uint64_t done, std::uint64_t total, std::string_view what)>;

}  // namespace ballast
