#include "source/remote/remote_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/remote/patience.h"
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

std::optional<std::uint64_t> content_length(const Answer& answer) {
  auto text = answer.find("content-length").value_or("");
  const auto length = take_number(text);
  return text.empty() ? length : std::nullopt;
}

std::string header(const Answer& answer, std::string_view name) { return std::string(answer.find(name).value_or("")); }

Version version_of(const Answer& answer, std::uint64_t size) {
  return {.size = size, .etag = header(answer, "etag"), .last_modified = header(answer, "last-modified")};
}

std::string describe(const Version& version) {
  const std::string& mark = version.etag.empty() ? version.last_modified : version.etag;
  return fmt::format("{} bytes{}", version.size, mark.empty() ? "" : fmt::format(", {}", quote(mark)));
}

bool is_strong(std::string_view etag) { return etag.starts_with('"'); }

std::string range_text(std::uint64_t begin, std::uint64_t end) { return fmt::format("bytes {} to {}", begin, end - 1); }

// Copies what comes to where it belongs.
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

// Servers that mirror each other agree on the ETag, and not always on the date. One that told something tells it again.
bool Version::is_same(const Version& other) const {
  if (size != other.size) return false;
  if (!etag.empty() && !other.etag.empty()) return etag == other.etag;
  const bool tells_nothing = etag.empty() && other.etag.empty();
  return last_modified == other.last_modified && (tells_nothing || !last_modified.empty());
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
  if (gives_parts_) request.headers.push_back(fmt::format("Range: bytes={}-{}", begin, end - 1));
  if (is_strong(version_.etag)) request.headers.push_back(fmt::format("If-Match: {}", version_.etag));
  return request;
}

// Where a redirect from the address itself led: another host, as the address's own needs to be told each time who asks.
void RemoteFile::remember(const Answer& answer, const std::string& asked) const {
  if (!answer.is_success() || asked != address_.url || uri_origin(answer.url) == uri_origin(asked)) return;
  const std::scoped_lock lock(mutex_);
  direct_url_ = answer.url;
}

// Why an answer is the end, if it is: signed addresses that redirects led to expire, and can be asked for again.
std::optional<Error> RemoteFile::give_up(const Answer& refused, const std::string& asked) const {
  if (refused.status == 412 || refused.status == 416) {
    return Error{.code = Errc::kIo,
                 .message = fmt::format("has changed on the server since it was opened: it was {}", describe(version_))};
  }
  const bool may_have_expired = refused.status == 401 || refused.status == 403 || refused.status == 404 || refused.status == 410;
  if (!may_have_expired || asked == address_.url) return refusal(refused, address_.hint);
  const std::scoped_lock lock(mutex_);
  if (direct_url_ == asked) direct_url_.clear();
  return std::nullopt;
}

Result<void> RemoteFile::read_front(std::uint64_t bytes) {
  Patience patience(Patience::Partial::kLost, stop_);
  std::uint64_t limit = bytes;  // of what is to come
  const auto answer = TRY(patience.ask(
      [&] {
        front_.clear();
        return make_request(0, bytes);
      },
      [&](const Answer& told, std::span<const std::byte> piece) {
        if (front_.empty()) {
          const auto length = content_length(told);
          limit = told.status == 206 ? bytes : length && *length <= whole_ ? *length : bytes;
          if (told.status == 200 && !length) limit = kLargestWhole;
          front_.reserve(std::min(limit, length.value_or(bytes)));
        }
        const std::size_t taken = std::min<std::uint64_t>(piece.size(), limit - front_.size());
        front_.insert(front_.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(taken));
        return taken == piece.size();
      }));
  return take_first_answer(answer, bytes);
}

Result<void> RemoteFile::take_first_answer(const Answer& answer, std::uint64_t bytes) {
  if (answer.status == 416 && header(answer, "content-range") == "bytes */0") {
    version_ = version_of(answer, 0);
  } else if (answer.status == 206) {
    const auto range = parse_content_range(header(answer, "content-range"));
    if (!range || range->begin != 0) {
      return fail(Errc::kIo, "asked for the first bytes, the server gave {}", quote(header(answer, "content-range")));
    }
    if (answer.is_broken_off || range->end < front_.size()) {
      return fail(Errc::kIo, "the server promised {} bytes and sent more", range->end);
    }
    version_ = version_of(answer, range->size);
  } else if (answer.status == 200) {
    const auto length = content_length(answer);
    if (answer.is_broken_off && !length) {
      return fail(Errc::kUnsupported, "the server gives no parts of files and does not say how long this one is");
    }
    version_ = version_of(answer, length.value_or(front_.size()));
    gives_parts_ = false;
  } else {
    auto next = address_.elsewhere ? address_.elsewhere(answer) : std::nullopt;
    if (!next) return std::unexpected(refusal(answer, address_.hint));
    address_ = std::move(*next);
    return read_front(bytes);
  }
  remember(answer, address_.url);
  first_answer_ = answer;
  return {};
}

std::optional<Error> RemoteFile::check_part(const Answer& answer, std::uint64_t begin, std::uint64_t end) const {
  const auto error = [](std::string message) { return Error{.code = Errc::kIo, .message = std::move(message)}; };
  const bool is_whole = answer.status == 200;
  const std::string told = header(answer, "content-range");
  const auto range = parse_content_range(told);
  if (!is_whole && (answer.status != 206 || !range || range->begin != begin || range->end > end)) {
    return error(fmt::format("{} were asked for, the server gave {}", range_text(begin, end), quote(told)));
  }
  const Version now = version_of(answer, is_whole ? content_length(answer).value_or(version_.size) : range->size);
  if (!now.is_same(version_)) {
    return error(fmt::format("has changed on the server: it was {}, now it is {}", describe(version_), describe(now)));
  }
  if (is_whole && gives_parts_) {
    return error(fmt::format("{} were asked for, the server sent the whole file", range_text(begin, end)));
  }
  if (is_whole && begin > 0) return error("the connection broke off, and the server gives no parts of files");
  return std::nullopt;
}

Result<void> RemoteFile::fetch(std::uint64_t begin, std::uint64_t end,
                               const std::function<bool(std::span<const std::byte>)>& take) const {
  Patience patience(Patience::Partial::kKept, stop_);
  while (begin < end) {
    const std::uint64_t before = begin;
    std::string asked;
    bool is_checked = false;
    std::optional<Error> wrong;
    const auto answer = TRY(patience.ask(
        [&] {
          is_checked = false;
          Request request = make_request(begin, end);
          asked = request.url;
          return request;
        },
        [&](const Answer& told, std::span<const std::byte> piece) {
          if (!std::exchange(is_checked, true)) wrong = check_part(told, begin, end);
          if (!wrong && piece.size() > end - begin) {
            wrong = {.code = Errc::kIo,
                     .message = fmt::format("{} were asked for, the server sent more", range_text(before, end))};
          }
          if (wrong) return false;
          begin += piece.size();
          if (!take(piece)) wrong = {.code = Errc::kCancelled, .message = "cancelled"};
          return !wrong;
        }));
    if (wrong) return std::unexpected(std::move(*wrong));
    if (answer.is_success()) {
      remember(answer, asked);
      if (begin > before || patience.wait()) continue;
      return fail(Errc::kIo, "{} were asked for, and nothing came", range_text(begin, end));
    }
    if (auto error = give_up(answer, asked)) return std::unexpected(std::move(*error));
    if (!patience.wait()) return std::unexpected(refusal(answer, address_.hint));
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
