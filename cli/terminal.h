#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <ballast/work.h>

namespace ballast::cli {

enum class Tone { kPlain, kBold, kDim, kGreen, kYellow, kRed };

// Colors `text` if standard output is a terminal and NO_COLOR is not set.
std::string tinted(Tone tone, std::string_view text);

// The width that tables and lists on standard output must fit: the terminal's, or 80.
std::size_t output_columns();

// Prints without throwing: main() checks at the end whether standard output took everything.
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}
// Prints text after `indent` spaces, and wraps it between words if standard output is a terminal.
void print_wrapped(std::size_t indent, std::string_view text);
void complain(std::string_view line);  // to standard error
void warn(std::string_view message);   // "warning: message", likewise
void note(std::string_view message);   // "note: message", likewise

// SIGINT, SIGTERM and SIGHUP exit with 130: at once, or when the work of a ProgressBar has stopped cleanly.
void watch_interrupts();

bool was_interrupted();

// A progress bar on standard error, with rate and time left, or a spinner while the total is unknown. Nothing is drawn if
// standard error is not a terminal. Stops the work on Ctrl-C.
class ProgressBar {
 public:
  explicit ProgressBar(std::string_view what);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  // Options for the work to show, which stops on Ctrl-C.
  WorkOptions work(unsigned threads = 0, std::uint64_t memory_limit = 0);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::uint64_t done, std::uint64_t total, std::string_view at);
  void draw_spinner(std::string_view at);

  std::string what_;
  Clock::time_point start_;
  Clock::time_point drawn_;
  std::size_t frame_ = 0;  // of the spinner
  bool shown_ = false;
};

}  // namespace ballast::cli
