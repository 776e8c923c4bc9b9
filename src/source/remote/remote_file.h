#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "source/remote/http.h"
#include "source/source.h"

namespace ballast::remote {

// How to request a file.
struct Address {
  std::string url;
  std::function<std::vector<std::string>()> sign;  // makes the authorization headers of each request; may be empty
  std::string ca_file;
  std::string hint;  // what the user can do about 401 and 403
  // Returns another address to try if the first response, which is not a success, names one. May be empty.
  std::function<std::optional<Address>(const Response& refused)> relocate;
};

// Identifies the content of a file. All responses for one file must have the same version.
struct Version {
  std::uint64_t size = 0;
  std::string etag;           // verbatim; empty if the server sends none
  std::string last_modified;  // verbatim; empty if the server sends none

  bool is_same(const Version& other) const;
};

// Size of the first request. Nearly all headers, and all of a small file, fit; a second request would cost more than these bytes.
constexpr std::uint64_t kFrontBytes = 100'000;

// Limit of a file that is kept in memory if the server does not support range requests.
constexpr std::uint64_t kLargestWhole = 100'000'000;

// Ranges, in order, that one request fetches. Bytes between them are discarded.
struct Transfer {
  std::uint64_t begin;
  std::uint64_t end;
  std::span<const Range> parts;
};

// The part of a file that a response contains.
struct ContentRange {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t size;  // of the file
};
std::optional<ContentRange> parse_content_range(std::string_view text);  // bytes 0-99/1000

// A file on an HTTP server, read in ranges. Thread-safe.
class RemoteFile {
 public:
  // Requests the first `front` bytes and learns the version from the response. If the server does not support range requests,
  // keeps the whole file in memory if it has at most `whole` bytes.
  static Result<std::unique_ptr<RemoteFile>> open(Address address, std::uint64_t front, StopToken stop,
                                                  std::uint64_t whole = kLargestWhole);

  const Version& version() const { return version_; }
  // The first bytes; all bytes if the server does not support range requests and the file is not too large.
  std::span<const std::byte> front() const { return front_; }
  bool supports_ranges() const { return supports_ranges_; }
  const Response& first_response() const { return first_response_; }

  // After an interruption, requests the missing bytes, as long as there is progress.
  Result<void> fetch(const Transfer& transfer) const;
  // The same, but calls `take` with every piece, in order. It returns false to cancel.
  Result<void> fetch(std::uint64_t begin, std::uint64_t end, const std::function<bool(std::span<const std::byte>)>& take) const;

 private:
  RemoteFile(Address address, StopToken stop, std::uint64_t whole);
  Result<void> read_front(std::uint64_t bytes);
  Result<void> read_first_response(const Response& response, std::uint64_t bytes);
  std::optional<Error> check_part(const Response& response, std::uint64_t begin, std::uint64_t end) const;
  Request make_request(std::uint64_t begin, std::uint64_t end) const;
  void remember_redirect(const Response& response, const std::string& requested_url) const;
  std::optional<Error> final_error(const Response& refused, const std::string& requested_url) const;

  Address address_;
  StopToken stop_;
  std::uint64_t whole_;
  Version version_;
  std::vector<std::byte> front_;
  Response first_response_;
  bool supports_ranges_ = true;
  mutable std::mutex mutex_;
  mutable std::string direct_url_;  // target of the last redirect; empty if there was none
};

}  // namespace ballast::remote
