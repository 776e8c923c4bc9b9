#pragma once

#include <utility>

#include <arrow/status.h>

#include <ballast/error.h>

namespace ballast::parquet {

// Carries an error of ours through Arrow.
arrow::Status to_status(Error error);

// What is being thrown, `otherwise` telling what a failure means that does not say so itself. For catch blocks.
Error current_error(Errc otherwise);

// Runs code that calls Arrow: nothing is thrown out of it.
template <class Work>
auto guard(Errc otherwise, Work&& work) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    return std::unexpected(current_error(otherwise));
  }
}

}  // namespace ballast::parquet
