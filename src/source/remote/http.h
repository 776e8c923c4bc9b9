#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <expected>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/work.h>

namespace ballast::remote {

struct Request {
  std::string url;
  std::vector<std::string> headers;         // "Range: bytes=0-9"
  std::vector<std::string> secret_headers;  // for the origin of `url` alone, wherever it sends us
  std::string ca_file;                      // of certificates to trust; the system's when empty
  bool is_head = false;
  bool follows_redirects = true;
};

struct Answer {
  long status = 0;
  std::string url;                                           // that gave it, after redirects
  std::vector<std::pair<std::string, std::string>> headers;  // names in small letters
  std::string text;                                          // the body of a status that is no success, its first kilobytes
  bool is_broken_off = false;                                // by the one who takes the body

  std::optional<std::string_view> find(std::string_view header) const;
  bool is_success() const { return status >= 200 && status < 300; }
};

// Why there is no answer, or not all of one.
struct Failure {
  std::string message;
  bool may_pass = false;  // trying again may help
};

// Hears of every piece of a success's body; false breaks off.
using TakeBody = std::function<bool(const Answer& answer, std::span<const std::byte> piece)>;

// One request, on a connection that is kept for the next one. Follows redirects, with limits on their number, on headers, and on
// how long nothing may come. A body that the server has compressed is refused. Asks `stop` several times a second.
std::expected<Answer, Failure> perform(const Request& request, const TakeBody& take, const StopToken& stop);

// A date as HTTP spells it.
std::optional<std::time_t> parse_date(const std::string& text);

// How long nothing or next to nothing may come before a transfer is given up.
std::chrono::seconds stall_limit();

}  // namespace ballast::remote
