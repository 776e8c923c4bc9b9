#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace ballast {

// Names what a caller can do about a failure; the message says what failed.
enum class Errc {
  kIo,               // the operating system refused or broke off a read
  kWrite,            // the output could not be written: no room, no permission, or it cannot hold what it was given
  kCorrupt,          // the bytes contradict themselves, their format or each other
  kUnsupported,      // well formed, but nothing here can do what was asked of it
  kNotFound,         // no such file or tensor
  kInvalidArgument,  // the caller's mistake
  kBelowMinimum,     // finished, but below the minimum that the caller set
  kCancelled,        // a progress callback or a stop token said stop
};

std::string_view name(Errc code);  // ReadError, WriteError and so on, as the packages for other languages call them

struct [[nodiscard]] Error {
  Errc code;
  std::string message;   // one line, safe to print: names from files are escaped
  int system_error = 0;  // its errno, if the operating system refused

  // Prefixes "place: ", the one thing that a layer knows and the one below it did not.
  Error at(std::string_view place) &&;
};

template <class T>
using Result = std::expected<T, Error>;

}  // namespace ballast
