#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace ballast {

// The kind of failure, by what a caller can do about it. The message has the details.
enum class Errc {
  kIo,               // a read failed in the operating system or on the network
  kWrite,            // the output could not be written: no space, no permission, or the format cannot store the data
  kCorrupt,          // the data violates its format or contradicts itself
  kUnsupported,      // the data is valid, but Ballast cannot do this with it
  kNotFound,         // no such file or tensor
  kInvalidArgument,  // the caller passed a wrong argument
  kBelowMinimum,     // the work finished, but the result is below the minimum that the caller set
  kCancelled,        // a progress callback or a stop token cancelled the work
};

std::string_view name(Errc code);  // the exception's name in Python and Node: ReadError, WriteError and so on

struct [[nodiscard]] Error {
  Errc code;
  std::string message;   // one line, safe to print: names from files are escaped
  int system_error = 0;  // errno, if the failure came from the operating system

  // Returns the error with "place: " before its message.
  Error at(std::string_view place) &&;
};

template <class T>
using Result = std::expected<T, Error>;

}  // namespace ballast
