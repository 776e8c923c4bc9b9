#include "source/remote/patience.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <random>
#include <thread>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast::remote {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kProgress = 16 << 10;  // less is no reason to go on for ever
constexpr milliseconds kFirstPause{250};
constexpr milliseconds kLongestPause{8000};
constexpr milliseconds kLongestAsked{120'000};  // that a server may ask for

bool is_busy(long status) {
  constexpr std::array kBusy{408L, 425L, 429L, 500L, 502L, 503L, 504L};
  return std::ranges::find(kBusy, status) != kBusy.end();
}

// Seconds, or a date.
std::optional<milliseconds> asked_pause(std::string_view retry_after) {
  double seconds = 0;
  const auto [stop, error] = std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
  if (error == std::errc{} && stop == retry_after.data() + retry_after.size() && seconds >= 0) {
    return seconds > 1e6 ? kLongestAsked + milliseconds(1) : milliseconds(static_cast<std::int64_t>(seconds * 1000));
  }
  const auto date = parse_date(std::string(retry_after));
  if (!date) return std::nullopt;
  return std::max(milliseconds(0), milliseconds((*date - std::time(nullptr)) * 1000));
}

std::string_view reason(long status) {
  switch (status) {
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 408: return "Request Timeout";
    case 410: return "Gone";
    case 412: return "Precondition Failed";
    case 416: return "Range Not Satisfiable";
    case 429: return "Too Many Requests";
    case 500: return "Internal Server Error";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    default: return {};
  }
}

// The text between <Message> and </Message>, or the header that the hub has for it.
std::string own_words(const Answer& answer) {
  if (const auto message = answer.find("x-error-message")) return quote(*message);
  constexpr std::string_view kOpen = "<Message>";
  const std::size_t begin = answer.text.find(kOpen);
  const std::size_t end = answer.text.find("</Message>");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return quote(std::string_view(answer.text).substr(begin + kOpen.size(), end - begin - kOpen.size()));
}

}  // namespace

bool Patience::wait(std::optional<std::string_view> retry_after) {
  if (++failures_ >= tries_) return false;
  static thread_local std::minstd_rand random(std::random_device{}());
  const auto most = std::min(kLongestPause, kFirstPause * (1 << (failures_ - 1)));
  auto pause = milliseconds(std::uniform_int_distribution<std::int64_t>(0, most.count())(random));
  if (const auto asked = retry_after ? asked_pause(*retry_after) : std::nullopt) {
    if (*asked > kLongestAsked) return false;
    pause += *asked;
  }
  constexpr milliseconds kStep{50};
  for (auto left = pause; left > milliseconds(0); left -= kStep) {
    if (stop_ && stop_()) {
      is_stopped_ = true;
      return false;
    }
    std::this_thread::sleep_for(std::min(left, kStep));
  }
  return true;
}

Result<Answer> Patience::ask(const std::function<Request()>& make_request, const TakeBody& take) {
  for (;;) {
    std::uint64_t came = 0;
    auto answer = perform(
        make_request(),
        [&](const Answer& told, std::span<const std::byte> piece) {
          came += piece.size();
          return take(told, piece);
        },
        stop_);
    if (partial_ == Partial::kKept && came >= kProgress) failures_ = 0;
    if (answer && !is_busy(answer->status)) return std::move(*answer);
    const bool may_pass = answer || answer.error().may_pass;
    const auto retry_after = answer ? answer->find("retry-after") : std::nullopt;
    if (may_pass && wait(retry_after)) continue;
    if (is_stopped_ || (stop_ && stop_())) return fail(Errc::kCancelled, "cancelled");
    if (!answer) {
      return fail(Errc::kIo, "{}{}", answer.error().message, may_pass ? fmt::format(" ({} tries)", failures_) : "");
    }
    Error error = refusal(*answer, {});
    if (retry_after) error.message += fmt::format(", and to try again after {}", quote(*retry_after));
    return std::unexpected(std::move(error));
  }
}

Result<std::string> get_text(const std::function<Request()>& make_request, std::uint64_t limit, const StopToken& stop,
                             Answer* answer, int tries) {
  Patience patience(Patience::Partial::kLost, stop, tries);
  std::string text;
  bool is_too_long = false;
  const auto got = TRY(patience.ask(
      [&] {
        text.clear();
        return make_request();
      },
      [&](const Answer&, std::span<const std::byte> piece) {
        is_too_long = piece.size() > limit - text.size();
        if (!is_too_long) text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return !is_too_long;
      }));
  if (is_too_long) return fail(Errc::kCorrupt, "the answer exceeds the limit of {} bytes", limit);
  if (answer != nullptr) *answer = got;
  if (!got.is_success()) return std::unexpected(refusal(got, {}));
  return text;
}

Error refusal(const Answer& answer, std::string_view hint) {
  const bool is_absent = answer.status == 404 || answer.status == 410;
  const std::string_view words = reason(answer.status);
  std::string message = fmt::format("the server says {}{}{}", answer.status, words.empty() ? "" : " ", words);
  if (const std::string own = own_words(answer); !own.empty()) message += fmt::format(", {}", own);
  const bool is_refused = answer.status == 401 || answer.status == 403;
  if (is_refused && !hint.empty()) message += fmt::format("; {}", hint);
  return {
      .code = is_absent ? Errc::kNotFound : Errc::kIo, .message = std::move(message), .system_error = is_refused ? EACCES : 0};
}

}  // namespace ballast::remote
