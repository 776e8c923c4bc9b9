#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>

#include <ballast/work.h>

#include "errors.h"
#include "interrupts.h"

namespace ballast::python {

// Runs long work without the GIL. A progress callback or Ctrl-C can cancel it. The work has stopped when the exception is raised.
class LongWork {
 public:
  // `callback` takes (done, total, what) and cancels the work by returning False or raising; it may be None.
  explicit LongWork(nanobind::object callback) : callback_(std::move(callback)) {}

  WorkOptions options(unsigned threads = 0, std::uint64_t memory_limit = 0) {
    return {
        .threads = threads,
        .memory_limit = memory_limit,
        .progress = [this](std::uint64_t done, std::uint64_t total, std::string_view what) { return report(done, total, what); },
        .stop = [this] { return is_stopped_.load(); }};
  }

  // `work` returns a Result.
  template <class Work>
  auto run(const Work& work) -> typename std::invoke_result_t<Work>::value_type {
    auto result = is_main_thread() ? watch(work) : released(work);
    if (error_) throw *std::move(error_);
    return take(std::move(result));
  }

 private:
  // Python handles signals only in its main thread, so that thread waits for them.
  template <class Work>
  auto watch(const Work& work) {
    const nanobind::gil_scoped_release release;
    auto done = std::async(std::launch::async, work);
    while (done.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      const nanobind::gil_scoped_acquire acquire;
      if (PyErr_CheckSignals() == 0) continue;
      note_interrupt();
      keep_error(nanobind::python_error());
    }
    return done.get();
  }

  bool report(std::uint64_t done, std::uint64_t total, std::string_view what) {
    if (is_stopped_) return false;
    if (callback_.is_none() || total == 0) return true;  // the total is not known yet
    const nanobind::gil_scoped_acquire acquire;
    try {
      const nanobind::object result = callback_(done, total, nanobind::str(what.data(), what.size()));
      if (is_false(result)) is_stopped_ = true;
    } catch (nanobind::python_error& error) {
      keep_error(std::move(error));
    }
    return !is_stopped_;
  }

  // False, or NumPy's False, which comparisons of its numbers return.
  static bool is_false(const nanobind::object& result) {
    if (result.is(nanobind::bool_(false))) return true;
    return nanobind::isinstance(result, nanobind::module_::import_("numpy").attr("bool_")) && PyObject_IsTrue(result.ptr()) == 0;
  }

  void keep_error(nanobind::python_error&& error) {
    is_stopped_ = true;
    if (!error_) error_.emplace(std::move(error));
  }

  static bool is_main_thread() {
    const auto threading = nanobind::module_::import_("threading");
    return threading.attr("current_thread")().is(threading.attr("main_thread")());
  }

  nanobind::object callback_;
  std::atomic<bool> is_stopped_ = false;
  std::optional<nanobind::python_error> error_;  // under the GIL
};

}  // namespace ballast::python
