#include "terminal.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "display_width.h"
#include "format.h"

namespace ballast::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t can_stop_cleanly = 0;

constexpr int kInterruptedExit = 130;

bool wants_color(int fd) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  const bool refused = (no_color != nullptr && *no_color != '\0') || term == nullptr || std::string_view(term) == "dumb";
  return !refused && ::isatty(fd) == 1;
}

std::string paint(Tone tone, std::string_view text) {
  constexpr std::array<std::string_view, 6> kCodes{"0", "1", "2", "32", "33", "31"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<std::size_t>(tone)], text);
}

constexpr std::size_t kUsualColumns = 80;

// The width of a terminal; empty if it does not report one.
std::optional<std::size_t> terminal_columns(int fd) {
  struct winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::optional<std::size_t> columns_from_environment() {
  const char* const text = std::getenv("COLUMNS");
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  std::size_t columns = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), columns);
  if (error != std::errc{} || stop != digits.data() + digits.size() || columns == 0) return std::nullopt;
  return columns;
}

// The current tensor or file, shortened; empty if the line has no room.
std::string label_after(std::size_t taken, std::size_t columns, std::string_view at) {
  constexpr std::size_t kFewest = 16;
  if (at.empty() || taken + 2 + kFewest >= columns) return {};
  return "  " + shortened(label_text(at), columns - taken - 3);
}

std::string duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string tinted(Tone tone, std::string_view text) {
  static const bool color = wants_color(STDOUT_FILENO);
  return color && tone != Tone::kPlain && !text.empty() ? paint(tone, text) : std::string(text);
}

std::size_t output_columns() {
  constexpr std::size_t kFewest = 40;
  if (::isatty(STDOUT_FILENO) != 1) return kUsualColumns;
  const auto terminal = terminal_columns(STDOUT_FILENO);
  return std::max(terminal ? *terminal : columns_from_environment().value_or(kUsualColumns), kFewest);
}

void print_wrapped(std::size_t indent, std::string_view text) {
  const std::size_t width = ::isatty(STDOUT_FILENO) == 1 ? output_columns() : std::numeric_limits<std::size_t>::max();
  std::string line(indent, ' ');
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > indent && column + 1 + display_width(word) > width) {
      line += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      line += ' ';
      ++column;
    }
    line += word;
    column += display_width(word);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  print("{}\n", line);
}

void complain(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fputc('\n', stderr);
}

void warn(std::string_view message) {
  complain(fmt::format("{}: {}", wants_color(STDERR_FILENO) ? paint(Tone::kYellow, "warning") : "warning", message));
}

void note(std::string_view message) { complain(fmt::format("note: {}", message)); }

void watch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) {
    if (can_stop_cleanly == 0 || interrupted != 0) ::_exit(kInterruptedExit);
    interrupted = 1;
  };
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);  // NOLINT(cert-err33-c): exceeding a file size limit fails the write instead
}

bool was_interrupted() { return interrupted != 0; }

ProgressBar::ProgressBar(std::string_view what) : what_(what), start_(Clock::now()) { can_stop_cleanly = 1; }

ProgressBar::~ProgressBar() {
  clear();
  can_stop_cleanly = 0;
}

WorkOptions ProgressBar::work(unsigned threads, std::uint64_t memory_limit) {
  const char* const term = std::getenv("TERM");
  const bool visible = ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
  const auto progress = [this, visible](std::uint64_t done, std::uint64_t total, std::string_view at) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    if (const auto now = Clock::now(); visible && now - drawn_ >= kPause && now - start_ >= kPause) {
      drawn_ = now;
      draw(done, total, at);
    }
    return interrupted == 0;
  };
  return {.threads = threads, .memory_limit = memory_limit, .progress = progress, .stop = was_interrupted};
}

void ProgressBar::draw(std::uint64_t done, std::uint64_t total, std::string_view at) {
  if (total == 0) {
    draw_spinner(at);
    return;
  }
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double rate = static_cast<double>(done) / seconds;
  const std::string rates = fmt::format(" {:3.0f} %  {} of {}  {}/s  {} left", share * 100, human_bytes(done), human_bytes(total),
                                        human_bytes(static_cast<std::uint64_t>(rate)),
                                        duration(rate > 0 ? static_cast<double>(total - done) / rate : 0));

  constexpr std::size_t kWidest = 32;
  const std::size_t taken = what_.size() + 1 + rates.size() + 1;
  const std::size_t columns = terminal_columns(STDERR_FILENO).value_or(kUsualColumns);
  const std::size_t room = columns > taken ? std::min(columns - taken, kWidest) : 0;
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(room));
  std::string bar;
  for (std::size_t i = 0; i < room; ++i) bar += i < filled ? "█" : "░";
  std::string text = fmt::format("{} {}{}", what_, bar, rates);
  if (room == 0) text.resize(std::min(text.size(), columns - 1));  // without a bar all of it is ASCII
  text += label_after(taken + room, columns, at);
  const std::string line = "\r\x1b[K" + text;
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressBar::draw_spinner(std::string_view at) {
  constexpr std::array<std::string_view, 4> kFrames{"|", "/", "-", "\\"};
  std::string text = fmt::format("{} {}", what_, kFrames[frame_++ % kFrames.size()]);
  text += label_after(display_width(text), terminal_columns(STDERR_FILENO).value_or(kUsualColumns), at);
  const std::string line = "\r\x1b[K" + text;
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressBar::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace ballast::cli
