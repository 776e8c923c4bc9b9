#include "interrupts.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <nanobind/nanobind.h>

namespace ballast::python {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough for every waiting thread to ask once more, short enough to be over before the next call.
constexpr auto kJustNow = std::chrono::milliseconds(1500);

std::atomic<Clock::rep>& last_interrupt() {
  static std::atomic<Clock::rep> time = 0;
  return time;
}

}  // namespace

void note_interrupt() { last_interrupt() = Clock::now().time_since_epoch().count(); }

bool was_interrupted() {
  const Clock::duration last(last_interrupt().load());
  if (last != Clock::duration::zero() && Clock::now().time_since_epoch() - last < kJustNow) return true;
  const nanobind::gil_scoped_acquire acquire;
  if (PyErr_Occurred() == nullptr && PyErr_CheckSignals() == 0) return false;  // in other threads this checks nothing
  note_interrupt();
  return true;
}

}  // namespace ballast::python
