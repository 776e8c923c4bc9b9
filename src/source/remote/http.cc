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

// Handles that are not in use, each with the connections that it has open. The last one given back is the next to be taken, so
// that few are kept busy rather than many warm.
class Pool {
 public:
  Handle take() {
    const std::scoped_lock lock(mutex_);
    if (process_ != ::getpid()) {  // after fork() the connections are the parent's, which must not hear of their end
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
  // Never destroyed: threads may still be at it when the process ends.
  static Pool* const pool = new Pool;  // NOLINT(cppcoreguidelines-owning-memory)
  return *pool;
}

// Sentences of libcurl, with quotes as they are.
std::string printable(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

class Exchange {
 public:
  Exchange(const Request& request, const TakeBody& take, const StopToken& stop) : request_(request), take_(take), stop_(stop) {
    answer_.url = request.url;
  }

  std::expected<Answer, Failure> run() {
    if (!load_curl()) return std::unexpected(Failure{.message = load_curl().error()});
    Handle handle = pool().take();
    if (!handle) return std::unexpected(Failure{.message = "no memory for a connection"});
    load_curl()->easy_reset(handle.get());  // keeps connections
    const HeaderList headers = make_headers();
    set_up(handle.get(), headers.get());
    const CURLcode code = load_curl()->easy_perform(handle.get());
    auto made = conclude(code);
    load_curl()->easy_reset(handle.get());  // it must not keep what it borrowed
    pool().give_back(std::move(handle));
    return made;
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
    set(CURLOPT_PATH_AS_IS, 1L);  // dots in keys of S3 are letters like others
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_USERAGENT, agent.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));  // connections side by side, not streams in one
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
      return give_up(fmt::format("the answer has more than {} bytes of headers", kMostHeaderBytes));
    }
    line = trimmed(line);
    if (line.starts_with("HTTP/")) {  // 100 Continue and answers of proxies may come first
      answer_.headers.clear();
      const std::size_t space = std::min(line.find(' '), line.size() - 1);
      std::from_chars(line.data() + space + 1, line.data() + line.size(), answer_.status);
      return true;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name = lowercase(line.substr(0, colon));
    answer_.headers.emplace_back(std::move(name), trimmed(line.substr(colon + 1)));
    return true;
  }

  bool take_body(std::string_view piece) {
    if (!answer_.is_success()) {
      answer_.text += piece.substr(0, kMostErrorText - answer_.text.size());
      return answer_.text.size() < kMostErrorText;
    }
    const auto coding = answer_.find("content-encoding");
    if (coding && *coding != "identity" && !coding->empty()) {
      return give_up(fmt::format("the server sent {} where plain bytes were asked for", quote(*coding)));
    }
    answer_.is_broken_off = !take_(answer_, std::as_bytes(std::span(piece)));
    return !answer_.is_broken_off;
  }

  bool give_up(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  std::expected<Answer, Failure> conclude(CURLcode code) {
    const bool has_answer = code == CURLE_OK || answer_.is_broken_off || (code == CURLE_WRITE_ERROR && !answer_.is_success());
    if (!refusal_.empty()) return std::unexpected(Failure{.message = refusal_});
    if (is_stopped_) return std::unexpected(Failure{.message = "cancelled"});
    if (has_answer && answer_.status != 0) return std::move(answer_);
    const std::string told = printable(error_text_[0] != '\0' ? error_text_ : load_curl()->easy_strerror(code));
    switch (code) {
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_URL_MALFORMAT:
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_SSL_CERTPROBLEM:
      case CURLE_OUT_OF_MEMORY:
      case CURLE_WEIRD_SERVER_REPLY: return std::unexpected(Failure{.message = told});
      case CURLE_OPERATION_TIMEDOUT:
        return std::unexpected(Failure{.message = answer_.status == 0 && header_bytes_ == 0
                                                      ? fmt::format("no answer: {}", told)
                                                      : fmt::format("the transfer stalled: {}", told),
                                       .may_pass = true});
      default: return std::unexpected(Failure{.message = told, .may_pass = true});
    }
  }

  const Request& request_;
  const TakeBody& take_;
  const StopToken& stop_;
  Answer answer_;
  std::size_t header_bytes_ = 0;
  std::string refusal_;
  bool is_stopped_ = false;
  char error_text_[CURL_ERROR_SIZE] = {};
};

bool is_redirect(long status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

}  // namespace

std::optional<std::string_view> Answer::find(std::string_view header) const {
  const auto found = std::ranges::find(headers, header, &std::pair<std::string, std::string>::first);
  return found == headers.end() ? std::nullopt : std::optional<std::string_view>(found->second);
}

std::optional<std::time_t> parse_date(const std::string& text) {
  const std::time_t time = load_curl() ? load_curl()->getdate(text.c_str(), nullptr) : -1;
  return time < 0 ? std::nullopt : std::optional(time);
}

std::chrono::seconds stall_limit() {
  constexpr int kUsual = 30;
  const std::string digits = environment({"BALLAST_HTTP_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"});
  int seconds = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool is_number = error == std::errc{} && stop == digits.data() + digits.size() && seconds > 0;
  return std::chrono::seconds(is_number ? seconds : kUsual);
}

std::expected<Answer, Failure> perform(const Request& request, const TakeBody& take, const StopToken& stop) {
  Request asked = request;
  for (int redirects = 0;; ++redirects) {
    auto answer = Exchange(asked, take, stop).run();
    if (!answer || !is_redirect(answer->status) || !request.follows_redirects) return answer;
    const auto location = answer->find("location");
    if (!location) return answer;
    if (redirects == kMostRedirects) {
      return std::unexpected(Failure{.message = fmt::format("redirected more than {} times", kMostRedirects)});
    }
    std::string next = resolve_reference(asked.url, std::string(*location));
    if (uri_scheme(asked.url) == "https" && uri_scheme(next) != "https") {
      return std::unexpected(Failure{.message = fmt::format("redirected from https to {}", quote(without_secrets(next)))});
    }
    if (uri_origin(next) != uri_origin(asked.url)) asked.secret_headers.clear();  // and they do not come back
    asked.url = std::move(next);
  }
}

}  // namespace ballast::remote
