#pragma once

#include <utility>

#include <arrow/status.h>

#include <ballast/error.h>

namespace ballast::parquet {

// Wraps a Ballast error to pass it through Arrow.
arrow::Status to_status(Error error);

// Converts the exception being handled. `otherwise` is the code of exceptions that do not carry one. For catch blocks.
Error current_error(Errc otherwise);

// Runs code that calls Arrow and converts its exceptions to errors.
template <class Work>
auto guard(Errc otherwise, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return std::unexpected(current_error(otherwise));
  }
}

}  // namespace ballast::parquet
