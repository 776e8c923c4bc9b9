#pragma once

#include <expected>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <ballast/error.h>

namespace ballast {

// return fail(Errc::kCorrupt, "{} bytes, expected {}", found, expected);
template <class... Args>
std::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{.code = code, .message = fmt::format(format, std::forward<Args>(args)...)});
}

// Appends the system's text for `error`: return fail_errno(Errc::kWrite, errno, "{}: cannot write", path);
template <class... Args>
std::unexpected<Error> fail_errno(Errc code, int error, fmt::format_string<Args...> format, Args&&... args) {
  std::string message = fmt::format(format, std::forward<Args>(args)...) + ": " + std::generic_category().message(error);
  return std::unexpected(Error{.code = code, .message = std::move(message), .system_error = error});
}

// Returns another call's error with the prefix "place: ".
inline std::unexpected<Error> fail_at(std::string_view place, Error error) { return std::unexpected(std::move(error).at(place)); }

}  // namespace ballast
