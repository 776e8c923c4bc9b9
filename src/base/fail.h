#pragma once

#include <expected>
#include <utility>

#include <fmt/format.h>

#include <ballast/error.h>

namespace ballast {

// return fail(Errc::kCorrupt, "{} bytes, expected {}", found, expected);
template <class... Args>
std::unexpected<Error> fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(Error{.code = code, .message = fmt::format(format, std::forward<Args>(args)...)});
}

// Passes another call's error on, said to have happened at `place`.
inline std::unexpected<Error> fail_at(std::string_view place, Error error) { return std::unexpected(std::move(error).at(place)); }

}  // namespace ballast
