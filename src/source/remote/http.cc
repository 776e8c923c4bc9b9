#include "source/remote/http.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <unistd.h>

#include <ballast/version.h>

#include "base/text.h"
#include "source/remote/curl.h"
#include "source/remote/environment.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

constexpr std::size_t kMostHeaderBytes = 64 << 10;
constexpr std::size_t kMostErrorText = 8 << 10;
constexpr int kMostRedirects = 10;
constexpr long kConnectSeconds = 10;
constexpr long kLeastBytesPerSecond = 1000;

struct CloseHandle {
  void operator()(CURL* handle) const { load_curl()->easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, CloseHandle>;

struct FreeList {
  void operator()(curl_slist* list) const { load_curl()->slist_free_all(list); }
};
using HeaderList = std::unique_ptr<curl_slist, FreeList>;

// Unused handles with their open connections. Last in, first out, so that few connections stay in use.
class Pool {
 public:
  Handle take() {
    const std::scoped_lock lock(mutex_);
    if (process_ != ::getpid()) {  // after fork() the connections belong to the parent and must not be closed
      for (Handle& handle : idle_) static_cast<void>(handle.release());  // NOLINT(bugprone-unused-return-value)
      idle_.clear();
      process_ = ::getpid();
    }
    if (idle_.empty()) return Handle(load_curl()->easy_init());
    Handle handle = std::move(idle_.back());
    idle_.pop_back();
    return handle;
  }

  void give_back(Handle handle) {
    constexpr std::size_t kMostIdle = 64;
    const std::scoped_lock lock(mutex_);
    if (idle_.size() < kMostIdle && process_ == ::getpid()) idle_.push_back(std::move(handle));
  }

 private:
  std::mutex mutex_;
  std::vector<Handle> idle_;
  pid_t process_ = ::getpid();
};

Pool& pool() {
  // Never destroyed: threads may still use it while the process exits.
  static Pool* const pool = new Pool;  // NOLINT(cppcoreguidelines-owning-memory)
  return *pool;
}

// A message of libcurl for printing. Unlike escape(), leaves quotes unchanged.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

class Exchange {
 public:
  Exchange(const Request& request, const TakeBody& take, const StopToken& stop) : request_(request), take_(take), stop_(stop) {
    response_.url = request.url;
  }

  std::expected<Response, Failure> run() {
    if (!load_curl()) return std::unexpected(Failure{.message = load_curl().error()});
    Handle handle = pool().take();
    if (!handle) return std::unexpected(Failure{.message = "out of memory"});
    load_curl()->easy_reset(handle.get());  // keeps open connections
    const HeaderList headers = make_headers();
    set_up(handle.get(), headers.get());
    const CURLcode code = load_curl()->easy_perform(handle.get());
    auto result = conclude(code);
    load_curl()->easy_reset(handle.get());  // drops pointers to this object and the headers
    pool().give_back(std::move(handle));
    return result;
  }

 private:
  HeaderList make_headers() const {
    curl_slist* list = nullptr;
    const auto add = [&](const std::string& header) {
      if (curl_slist* const longer = load_curl()->slist_append(list, header.c_str())) list = longer;
    };
    add("Accept-Encoding: identity");
    for (const std::string& header : request_.headers) add(header);
    for (const std::string& header : request_.secret_headers) add(header);
    return HeaderList(list);
  }

  void set_up(CURL* handle, curl_slist* headers) {
    static const std::string agent = fmt::format("ballast/{}", kVersion);
    const auto set = [&](CURLoption option, auto value) { load_curl()->easy_setopt(handle, option, value); };
    set(CURLOPT_URL, request_.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);  // an S3 key may contain `.` and `..` as ordinary characters
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_USERAGENT, agent.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // parallel connections instead of streams in one
    set(CURLOPT_NOBODY, request_.is_head ? 1L : 0L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_BUFFERSIZE, 256L << 10);
    set(CURLOPT_TCP_NODELAY, 1L);
    set(CURLOPT_TCP_KEEPALIVE, 1L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesPerSecond);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall_limit().count()));
    set(CURLOPT_ERRORBUFFER, error_text_);
    if (const std::string ca = ca_file(); !ca.empty()) set(CURLOPT_CAINFO, ca.c_str());
    set(CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Exchange::on_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Exchange::on_wait);
    set(CURLOPT_XFERINFODATA, this);
  }

  std::string ca_file() const {
    if (!request_.ca_file.empty()) return request_.ca_file;
    return environment({"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"});
  }

  static std::size_t on_header(const char* data, std::size_t, std::size_t size, void* self) {
    return static_cast<Exchange*>(self)->take_header({data, size}) ? size : 0;
  }
  static std::size_t on_body(const char* data, std::size_t, std::size_t size, void* self) {
    return static_cast<Exchange*>(self)->take_body({data, size}) ? size : 0;
  }
  static int on_wait(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& exchange = *static_cast<Exchange*>(self);
    exchange.is_stopped_ = exchange.stop_ && exchange.stop_();
    return exchange.is_stopped_ ? 1 : 0;
  }

  bool take_header(std::string_view line) {
    header_bytes_ += line.size();
    if (header_bytes_ > kMostHeaderBytes) {
      return refuse(fmt::format("the response has more than {} bytes of headers", kMostHeaderBytes));
    }
    line = trimmed(line);
    if (line.starts_with("HTTP/")) {  // 100 Continue and responses of proxies may come first
      response_.headers.clear();
      const std::size_t space = std::min(line.find(' '), line.size() - 1);
      std::from_chars(line.data() + space + 1, line.data() + line.size(), response_.status);
      return true;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name = lowercase(line.substr(0, colon));
    response_.headers.emplace_back(std::move(name), trimmed(line.substr(colon + 1)));
    return true;
  }

  bool take_body(std::string_view piece) {
    if (!response_.is_success()) {
      response_.text += piece.substr(0, kMostErrorText - response_.text.size());
      return response_.text.size() < kMostErrorText;
    }
    const auto coding = response_.find("content-encoding");
    if (coding && *coding != "identity" && !coding->empty()) {
      return refuse(fmt::format("the server sent Content-Encoding {}; only uncompressed data is supported", quote(*coding)));
    }
    response_.is_aborted = !take_(response_, std::as_bytes(std::span(piece)));
    return !response_.is_aborted;
  }

  bool refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  std::expected<Response, Failure> conclude(CURLcode code) {
    const bool has_response = code == CURLE_OK || response_.is_aborted || (code == CURLE_WRITE_ERROR && !response_.is_success());
    if (!refusal_.empty()) return std::unexpected(Failure{.message = refusal_});
    if (is_stopped_) return std::unexpected(Failure{.message = "cancelled"});
    if (has_response && response_.status != 0) return std::move(response_);
    const std::string message = printable(error_text_[0] != '\0' ? error_text_ : load_curl()->easy_strerror(code));
    switch (code) {
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_URL_MALFORMAT:
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_CERTPROBLEM:
      case CURLE_OUT_OF_MEMORY:
      case CURLE_WEIRD_SERVER_REPLY: return std::unexpected(Failure{.message = message});
      case CURLE_OPERATION_TIMEDOUT:
        return std::unexpected(Failure{.message = response_.status == 0 && header_bytes_ == 0
                                                      ? fmt::format("no response: {}", message)
                                                      : fmt::format("the transfer stalled: {}", message),
                                       .is_transient = true});
      default: return std::unexpected(Failure{.message = message, .is_transient = true});
    }
  }

  const Request& request_;
  const TakeBody& take_;
  const StopToken& stop_;
  Response response_;
  std::size_t header_bytes_ = 0;
  std::string refusal_;
  bool is_stopped_ = false;
  char error_text_[CURL_ERROR_SIZE] = {};
};

bool is_redirect(long status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

}  // namespace

std::optional<std::string_view> Response::find(std::string_view header) const {
  const auto found = std::ranges::find(headers, header, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::nullopt : std::optional<std::string_view>(found->second);
}

std::optional<std::time_t> parse_date(const std::string& text) {
  const std::time_t time = load_curl() ? load_curl()->getdate(text.c_str(), nullptr) : -1;
  return time < 0 ? std::nullopt : std::optional(time);
}

std::chrono::seconds stall_limit() {
  constexpr int kDefault = 30;
  const std::string digits = environment({"BALLAST_HTTP_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"});
  int seconds = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool is_number = error == std::errc{} && stop == digits.data() + digits.size() && seconds > 0;
  return std::chrono::seconds(is_number ? seconds : kDefault);
}

std::expected<Response, Failure> perform(const Request& request, const TakeBody& take, const StopToken& stop) {
  Request current = request;
  for (int redirects = 0;; ++redirects) {
    auto response = Exchange(current, take, stop).run();
    if (!response || !is_redirect(response->status) || !request.follows_redirects) return response;
    const auto location = response->find("location");
    if (!location) return response;
    if (redirects == kMostRedirects) {
      return std::unexpected(Failure{.message = fmt::format("redirected more than {} times", kMostRedirects)});
    }
    std::string next = resolve_reference(current.url, std::string(*location));
    if (uri_scheme(current.url) == "https" && uri_scheme(next) != "https") {
      return std::unexpected(Failure{
          .message = fmt::format("the server redirects from https to {}, which is not secure", quote(without_secrets(next)))});
    }
    if (uri_origin(next) != uri_origin(current.url)) current.secret_headers.clear();  // also for redirects back
    current.url = std::move(next);
  }
}

}  // namespace ballast::remote
