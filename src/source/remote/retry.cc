#include "source/remote/retry.h"

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

constexpr std::uint64_t kProgress = 16 << 10;  // bytes; less does not reset the number of failures
constexpr milliseconds kFirstPause{250};
constexpr milliseconds kLongestPause{8000};
constexpr milliseconds kLongestRequestedPause{120'000};  // longest Retry-After to wait for

bool is_busy(long status) {
  constexpr std::array kBusy{408L, 425L, 429L, 500L, 502L, 503L, 504L};
  return std::ranges::find(kBusy, status) != kBusy.end();
}

// Parses Retry-After: seconds or a date.
std::optional<milliseconds> requested_pause(std::string_view retry_after) {
  double seconds = 0;
  const auto [stop, error] = std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), seconds);
  if (error == std::errc{} && stop == retry_after.data() + retry_after.size() && seconds >= 0) {
    return seconds > 1e6 ? kLongestRequestedPause + milliseconds(1) : milliseconds(static_cast<std::int64_t>(seconds * 1000));
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

// The error message of S3 (<Message> in XML) or of the Hugging Face Hub (a header).
std::string server_message(const Response& response) {
  if (const auto message = response.find("x-error-message")) return quote(*message);
  constexpr std::string_view kOpen = "<Message>";
  const std::size_t begin = response.text.find(kOpen);
  const std::size_t end = response.text.find("</Message>");
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return quote(std::string_view(response.text).substr(begin + kOpen.size(), end - begin - kOpen.size()));
}

}  // namespace

bool Retry::wait(std::optional<std::string_view> retry_after) {
  if (++failures_ >= attempts_) return false;
  static thread_local std::minstd_rand random(std::random_device{}());
  const auto most = std::min(kLongestPause, kFirstPause * (1 << (failures_ - 1)));
  auto pause = milliseconds(std::uniform_int_distribution<std::int64_t>(0, most.count())(random));
  if (const auto requested = retry_after ? requested_pause(*retry_after) : std::nullopt) {
    if (*requested > kLongestRequestedPause) return false;
    pause += *requested;
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

Result<Response> Retry::send(const std::function<Request()>& make_request, const TakeBody& take) {
  for (;;) {
    std::uint64_t received = 0;
    auto response = perform(
        make_request(),
        [&](const Response& head, std::span<const std::byte> piece) {
          received += piece.size();
          return take(head, piece);
        },
        stop_);
    if (partial_ == Partial::kKept && received >= kProgress) failures_ = 0;
    if (response && !is_busy(response->status)) return std::move(*response);
    const bool is_transient = response || response.error().is_transient;
    const auto retry_after = response ? response->find("retry-after") : std::nullopt;
    if (is_transient && wait(retry_after)) continue;
    if (is_stopped_ || (stop_ && stop_())) return fail(Errc::kCancelled, "cancelled");
    if (!response) {
      return fail(Errc::kIo, "{}{}", response.error().message, is_transient ? fmt::format(" ({} attempts)", failures_) : "");
    }
    Error error = response_error(*response, {});
    if (retry_after) error.message += fmt::format("; it asks to retry after {}", quote(*retry_after));
    return std::unexpected(std::move(error));
  }
}

Result<std::string> get_text(const std::function<Request()>& make_request, std::uint64_t limit, const StopToken& stop,
                             Response* response, int attempts) {
  Retry retry(Retry::Partial::kDiscarded, stop, attempts);
  std::string text;
  bool is_too_long = false;
  const auto got = TRY(retry.send(
      [&] {
        text.clear();
        return make_request();
      },
      [&](const Response&, std::span<const std::byte> piece) {
        is_too_long = piece.size() > limit - text.size();
        if (!is_too_long) text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return !is_too_long;
      }));
  if (is_too_long) return fail(Errc::kCorrupt, "the response exceeds the limit of {} bytes", limit);
  if (response != nullptr) *response = got;
  if (!got.is_success()) return std::unexpected(response_error(got, {}));
  return text;
}

Error response_error(const Response& response, std::string_view hint) {
  const bool is_absent = response.status == 404 || response.status == 410;
  const std::string_view words = reason(response.status);
  std::string message = fmt::format("the server returned {}{}{}", response.status, words.empty() ? "" : " ", words);
  if (const std::string own = server_message(response); !own.empty()) message += fmt::format(": {}", own);
  const bool is_refused = response.status == 401 || response.status == 403;
  if (is_refused && !hint.empty()) message += fmt::format("; {}", hint);
  return {
      .code = is_absent ? Errc::kNotFound : Errc::kIo, .message = std::move(message), .system_error = is_refused ? EACCES : 0};
}

}  // namespace ballast::remote
