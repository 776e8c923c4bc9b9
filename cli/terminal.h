#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <ballast/progress.h>

namespace ballast::cli {

enum class Tone { kPlain, kBold, kDim, kGreen, kYellow, kRed };

// Colours `text` if standard output is a terminal and NO_COLOR is not set.
std::string tinted(Tone tone, std::string_view text);

// Prints "warning: message" to standard error.
void warn(std::string_view message);

// From now on the first Ctrl-C asks long work to stop; a second one kills.
void watch_interrupts();
bool interrupted();

// A bar on standard error while it is a terminal, with rate and time left; nothing otherwise. Stops the work on Ctrl-C.
class ProgressBar {
 public:
  explicit ProgressBar(std::string_view what) : what_(what), start_(Clock::now()) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { clear(); }

  Progress callback();
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::uint64_t done, std::uint64_t total);

  std::string what_;
  Clock::time_point start_;
  Clock::time_point drawn_;
  bool shown_ = false;
};

}  // namespace ballast::cli
