#pragma once

#include <utility>

#include <nanobind/nanobind.h>

#include <ballast/error.h>

namespace ballast::python {

// Raises the exception for the error's code. Needs the GIL.
[[noreturn]] void raise(const Error& error);

inline void take(const Result<void>& result) {
  if (!result) raise(result.error());
}

template <class T>
T take(Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

// Runs `work` without the GIL.
template <class Work>
auto released(const Work& work) {
  const nanobind::gil_scoped_release release;
  return work();
}

}  // namespace ballast::python
