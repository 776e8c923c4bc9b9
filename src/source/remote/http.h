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
  std::vector<std::string> secret_headers;  // sent only to the origin of `url`, never to the target of a redirect
  std::string ca_file;                      // certificates to trust; empty: those of the system
  bool is_head = false;
  bool follows_redirects = true;
};

struct Response {
  long status = 0;
  std::string url;                                           // after redirects
  std::vector<std::pair<std::string, std::string>> headers;  // names in lowercase
  std::string text;                                          // the first kilobytes of the body, if the status is not a success
  bool is_aborted = false;                                   // TakeBody returned false

  std::optional<std::string_view> find(std::string_view header) const;
  bool is_success() const { return status >= 200 && status < 300; }
};

// Why there is no complete response.
struct Failure {
  std::string message;
  bool is_transient = false;  // a retry may help
};

// Called with every piece of the body of a successful response. Returns false to abort the transfer.
using TakeBody = std::function<bool(const Response& response, std::span<const std::byte> piece)>;

// Sends one request and keeps the connection open for the next one. Follows redirects. Limits the number of redirects, the size
// of the headers and the time without data. Refuses a compressed body. Polls `stop` several times per second.
std::expected<Response, Failure> perform(const Request& request, const TakeBody& take, const StopToken& stop);

// Parses a date in a format of HTTP.
std::optional<std::time_t> parse_date(const std::string& text);

// A transfer that stays below 1 kB/s for this time is aborted.
std::chrono::seconds stall_limit();

}  // namespace ballast::remote
