#include "terminal.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "format.h"

namespace ballast::cli {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

bool wants_colour(int fd) {
  const char* const no_colour = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  const bool refused = (no_colour != nullptr && *no_colour != '\0') || term == nullptr || std::string_view(term) == "dumb";
  return !refused && ::isatty(fd) == 1;
}

std::string paint(Tone tone, std::string_view text) {
  constexpr std::array<std::string_view, 6> kCodes{"0", "1", "2", "32", "33", "31"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(tone)], text);
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string tinted(Tone tone, std::string_view text) {
  static const bool colour = wants_colour(STDOUT_FILENO);
  return colour && tone != Tone::kPlain ? paint(tone, text) : std::string(text);
}

void warn(std::string_view message) {
  const std::string label = wants_colour(STDERR_FILENO) ? paint(Tone::kYellow, "warning") : "warning";
  fmt::print(stderr, "{}: {}\n", label, message);
}

void watch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupt_seen = 1; };
  action.sa_flags = SA_RESETHAND;
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupted() { return interrupt_seen != 0; }

Progress ProgressBar::callback() {
  const bool visible = ::isatty(STDERR_FILENO) == 1;
  return [this, visible](std::uint64_t done, std::uint64_t total, std::string_view) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    if (const auto now = Clock::now(); visible && now - drawn_ >= kPause && now - start_ >= kPause) {
      drawn_ = now;
      draw(done, total);
    }
    return !interrupted();
  };
}

void ProgressBar::draw(std::uint64_t done, std::uint64_t total) {
  constexpr std::size_t kWidth = 24;
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  const auto filled = static_cast<std::size_t>(share * kWidth);
  std::string bar;
  for (std::size_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  fmt::print(stderr, "\r\x1b[K{} {} {:3.0f} %  {} of {}  {}/s  {} left", what_, bar, share * 100, human_bytes(done),
             human_bytes(total), human_bytes(static_cast<std::uint64_t>(rate)),
             duration(rate > 0 ? static_cast<double>(total - done) / rate : 0));
  std::fflush(stderr);
  shown_ = true;
}

void ProgressBar::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ballast::cli
