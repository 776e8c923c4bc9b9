#pragma once

#include <expected>
#include <type_traits>
#include <utility>

#include <ballast/error.h>

// Evaluates to the value of a Result, moved out. On failure, returns the error from the enclosing function:
//   const Model model = TRY(Model::open(path));
// Uses statement expressions, an extension of g++ and clang.
// NOLINTBEGIN(cppcoreguidelines-macro-usage): only a macro can return from its caller
#define TRY(...) BALLAST_TRY(BALLAST_TRY_NAME(try_result_, __COUNTER__), __VA_ARGS__)
#define BALLAST_TRY(result, ...)                                                           \
  __extension__({                                                                          \
    auto&& result = (__VA_ARGS__);                                                         \
    if (!result.has_value()) return std::unexpected(ballast::error_of(std::move(result))); \
    ballast::value_of(std::move(result));                                                  \
  })
#define BALLAST_TRY_NAME(prefix, number) BALLAST_TRY_JOIN(prefix, number)
#define BALLAST_TRY_JOIN(prefix, number) prefix##number
// NOLINTEND(cppcoreguidelines-macro-usage)

namespace ballast {

// The error, moved out, or copied if `result` is const.
template <class R>
Error error_of(R&& result) {
  return std::forward<R>(result).error();
}

// The value, moved out; void for a Result<void>.
template <class R>
auto value_of(R&& result) -> std::remove_cvref_t<R>::value_type {
  return *std::forward<R>(result);
}

}  // namespace ballast
