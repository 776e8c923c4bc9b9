#include "source/remote/remote_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/remote/retry.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

std::optional<std::uint64_t> take_number(std::string_view& text) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return value;
}

bool take_text(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

std::optional<std::uint64_t> content_length(const Response& response) {
  auto text = response.find("content-length").value_or("");
  const auto length = take_number(text);
  return text.empty() ? length : std::nullopt;
}

std::string header(const Response& response, std::string_view name) { return std::string(response.find(name).value_or("")); }

Version version_of(const Response& response, std::uint64_t size) {
  return {.size = size, .etag = header(response, "etag"), .last_modified = header(response, "last-modified")};
}

std::string describe(const Version& version) {
  const std::string& tag = version.etag.empty() ? version.last_modified : version.etag;
  return fmt::format("{} bytes{}", version.size, tag.empty() ? "" : fmt::format(", {}", quote(tag)));
}

bool is_strong(std::string_view etag) { return etag.starts_with('"'); }

std::string range_text(std::uint64_t begin, std::uint64_t end) { return fmt::format("bytes {} to {}", begin, end - 1); }

// Copies the received bytes to the ranges of a transfer.
class Scatter {
 public:
  explicit Scatter(const Transfer& transfer) : parts_(transfer.parts), at_(transfer.begin) {}

  void take(std::span<const std::byte> piece) {
    const std::uint64_t end = at_ + piece.size();
    while (!parts_.empty() && parts_.front().offset + parts_.front().out.size() <= at_) parts_ = parts_.subspan(1);
    for (const Range& part : parts_) {
      if (part.offset >= end) break;
      const std::uint64_t from = std::max(part.offset, at_);
      const std::uint64_t to = std::min(part.offset + part.out.size(), end);
      if (from < to) std::memcpy(part.out.data() + (from - part.offset), piece.data() + (from - at_), to - from);
    }
    at_ = end;
  }

 private:
  std::span<const Range> parts_;
  std::uint64_t at_;
};

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
  if (!take_text(text, "bytes ")) return std::nullopt;
  const auto begin = take_number(text);
  if (!begin || !take_text(text, "-")) return std::nullopt;
  const auto last = take_number(text);
  if (!last || *last < *begin || *last == UINT64_MAX || !take_text(text, "/")) return std::nullopt;
  const auto size = take_number(text);
  if (!size || !text.empty() || *last >= *size) return std::nullopt;
  return ContentRange{.begin = *begin, .end = *last + 1, .size = *size};
}

// Mirrors of a server have the same ETag but not always the same date, so dates are compared only if an ETag is missing. A server
// that sent an ETag or a date once must send it again.
bool Version::is_same(const Version& other) const {
  if (size != other.size) return false;
  if (!etag.empty() && !other.etag.empty()) return etag == other.etag;
  const bool no_etags = etag.empty() && other.etag.empty();
  return last_modified == other.last_modified && (no_etags || !last_modified.empty());
}

RemoteFile::RemoteFile(Address address, StopToken stop, std::uint64_t whole)
    : address_(std::move(address)), stop_(std::move(stop)), whole_(whole) {}

Result<std::unique_ptr<RemoteFile>> RemoteFile::open(Address address, std::uint64_t front, StopToken stop, std::uint64_t whole) {
  std::unique_ptr<RemoteFile> file(new RemoteFile(std::move(address), std::move(stop), whole));
  TRY(file->read_front(front));
  return file;
}

Request RemoteFile::make_request(std::uint64_t begin, std::uint64_t end) const {
  Request request{.ca_file = address_.ca_file};
  {
    const std::scoped_lock lock(mutex_);
    request.url = direct_url_;
  }
  if (request.url.empty()) {
    request.url = address_.url;
    if (address_.sign) request.secret_headers = address_.sign();
  }
  if (supports_ranges_) request.headers.push_back(fmt::format("Range: bytes={}-{}", begin, end - 1));
  if (is_strong(version_.etag)) request.headers.push_back(fmt::format("If-Match: {}", version_.etag));
  return request;
}

// Remembers the target of a redirect to another host, so that later requests go there directly. On the original host every
// request needs authorization headers, so redirects within it are not remembered.
void RemoteFile::remember_redirect(const Response& response, const std::string& requested_url) const {
  if (!response.is_success() || requested_url != address_.url || uri_origin(response.url) == uri_origin(requested_url)) return;
  const std::scoped_lock lock(mutex_);
  direct_url_ = response.url;
}

// The error if a retry cannot help. It can if a signed URL of a redirect has expired: the original URL gives a new one.
std::optional<Error> RemoteFile::final_error(const Response& refused, const std::string& requested_url) const {
  if (refused.status == 412 || refused.status == 416) {
    return Error{.code = Errc::kIo,
                 .message = fmt::format("the file changed on the server after it was opened (it was {}); start again",
                                        describe(version_))};
  }
  const bool may_have_expired = refused.status == 401 || refused.status == 403 || refused.status == 404 || refused.status == 410;
  if (!may_have_expired || requested_url == address_.url) return response_error(refused, address_.hint);
  const std::scoped_lock lock(mutex_);
  if (direct_url_ == requested_url) direct_url_.clear();
  return std::nullopt;
}

Result<void> RemoteFile::read_front(std::uint64_t bytes) {
  Retry retry(Retry::Partial::kDiscarded, stop_);
  std::uint64_t limit = bytes;  // most bytes to keep
  const auto response = TRY(retry.send(
      [&] {
        front_.clear();
        return make_request(0, bytes);
      },
      [&](const Response& head, std::span<const std::byte> piece) {
        if (front_.empty()) {
          const auto length = content_length(head);
          limit = head.status == 206 ? bytes : length && *length <= whole_ ? *length : bytes;
          if (head.status == 200 && !length) limit = kLargestWhole;
          front_.reserve(std::min(limit, length.value_or(bytes)));
        }
        const std::size_t taken = std::min<std::uint64_t>(piece.size(), limit - front_.size());
        front_.insert(front_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(taken));
        return taken == piece.size();
      }));
  return read_first_response(response, bytes);
}

Result<void> RemoteFile::read_first_response(const Response& response, std::uint64_t bytes) {
  if (response.status == 416 && header(response, "content-range") == "bytes */0") {
    version_ = version_of(response, 0);
  } else if (response.status == 206) {
    const auto range = parse_content_range(header(response, "content-range"));
    if (!range || range->begin != 0) {
      return fail(Errc::kIo, "requested the first bytes, but the server sent Content-Range {}",
                  quote(header(response, "content-range")));
    }
    if (response.is_aborted || range->end < front_.size()) {
      return fail(Errc::kIo, "the server announced {} bytes but sent more", range->end);
    }
    version_ = version_of(response, range->size);
  } else if (response.status == 200) {
    const auto length = content_length(response);
    if (response.is_aborted && !length) {
      return fail(Errc::kUnsupported,
                  "the server supports no range requests and sends no Content-Length; download the file with another tool first");
    }
    version_ = version_of(response, length.value_or(front_.size()));
    supports_ranges_ = false;
  } else {
    auto next = address_.relocate ? address_.relocate(response) : std::nullopt;
    if (!next) return std::unexpected(response_error(response, address_.hint));
    address_ = std::move(*next);
    return read_front(bytes);
  }
  remember_redirect(response, address_.url);
  first_response_ = response;
  return {};
}

std::optional<Error> RemoteFile::check_part(const Response& response, std::uint64_t begin, std::uint64_t end) const {
  const auto error = [](std::string message) { return Error{.code = Errc::kIo, .message = std::move(message)}; };
  const bool is_whole = response.status == 200;
  const std::string content_range = header(response, "content-range");
  const auto range = parse_content_range(content_range);
  if (!is_whole && (response.status != 206 || !range || range->begin != begin || range->end > end)) {
    return error(fmt::format("requested {}, but the server sent Content-Range {}", range_text(begin, end), quote(content_range)));
  }
  const Version now = version_of(response, is_whole ? content_length(response).value_or(version_.size) : range->size);
  if (!now.is_same(version_)) {
    return error(
        fmt::format("the file changed on the server: it was {}, now it is {}; start again", describe(version_), describe(now)));
  }
  if (is_whole && supports_ranges_) {
    return error(fmt::format("requested {}, but the server sent the whole file", range_text(begin, end)));
  }
  if (is_whole && begin > 0) return error("the connection was lost, and the server does not support range requests to resume");
  return std::nullopt;
}

Result<void> RemoteFile::fetch(std::uint64_t begin, std::uint64_t end,
                               const std::function<bool(std::span<const std::byte>)>& take) const {
  Retry retry(Retry::Partial::kKept, stop_);
  while (begin < end) {
    const std::uint64_t before = begin;
    std::string requested_url;
    bool is_checked = false;
    std::optional<Error> wrong;
    const auto response = TRY(retry.send(
        [&] {
          is_checked = false;
          Request request = make_request(begin, end);
          requested_url = request.url;
          return request;
        },
        [&](const Response& head, std::span<const std::byte> piece) {
          if (!std::exchange(is_checked, true)) wrong = check_part(head, begin, end);
          if (!wrong && piece.size() > end - begin) {
            wrong = {.code = Errc::kIo,
                     .message = fmt::format("requested {}, but the server sent more", range_text(before, end))};
          }
          if (wrong) return false;
          begin += piece.size();
          if (!take(piece)) wrong = {.code = Errc::kCancelled, .message = "cancelled"};
          return !wrong;
        }));
    if (wrong) return std::unexpected(std::move(*wrong));
    if (response.is_success()) {
      remember_redirect(response, requested_url);
      if (begin > before || retry.wait()) continue;
      return fail(Errc::kIo, "requested {}, but the server sent nothing", range_text(begin, end));
    }
    if (auto error = final_error(response, requested_url)) return std::unexpected(std::move(*error));
    if (!retry.wait()) return std::unexpected(response_error(response, address_.hint));
  }
  return {};
}

Result<void> RemoteFile::fetch(const Transfer& transfer) const {
  Scatter scatter(transfer);
  return fetch(transfer.begin, transfer.end, [&](std::span<const std::byte> piece) {
    scatter.take(piece);
    return true;
  });
}

}  // namespace ballast::remote
