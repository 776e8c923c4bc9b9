#pragma once

#include <expected>
#include <utility>

#include <ballast/error.h>

// The value of a call that gives a Result; a failure ends the enclosing function with its error:
//   const Model model = TRY(Model::open(path));
// The result is moved out, so what it owns can be kept. Statement expressions are an extension that g++ and clang share.
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): only a macro can return from its caller
#define TRY(...)                                                                                    \
  __extension__({                                                                                   \
    auto&& try_result_ = (__VA_ARGS__);                                                             \
    if (!try_result_.has_value()) return std::unexpected(ballast::try_error(std::move(try_result_))); \
    *std::move(try_result_);                                                                        \
  })

namespace ballast {

// The error of a result that may be used up, copied if it is const.
template <class R>
Error try_error(R&& result) {
  return std::forward<R>(result).error();
}

}  // namespace ballast
