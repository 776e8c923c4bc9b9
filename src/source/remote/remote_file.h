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

// Where a file is, and how to ask for it.
struct Address {
  std::string url;
  std::function<std::vector<std::string>()> sign;  // headers that say who asks, made anew for every request; may be empty
  std::string ca_file;
  std::string hint;  // what to do about a refusal, for the message
  // Where to ask instead of it, by what the first answer, no success, says; may be empty, and so may its answer.
  std::function<std::optional<Address>(const Answer& refused)> elsewhere;
};

// What a server says about a file. All answers about one file must agree in it.
struct Version {
  std::uint64_t size = 0;
  std::string etag;           // as it is spelt, empty without one
  std::string last_modified;  // likewise

  bool is_same(const Version& other) const;
};

// As much as the headers of nearly all files have, and small files as a whole: another request costs more than these bytes.
constexpr std::uint64_t kFrontBytes = 100'000;

// That is kept in memory where the server gives no parts.
constexpr std::uint64_t kLargestWhole = 100'000'000;

// Runs of bytes, in order, that are asked for in one request; what lies between them is thrown away as it comes.
struct Transfer {
  std::uint64_t begin;
  std::uint64_t end;
  std::span<const Range> parts;
};

// Which part of a file an answer has.
struct ContentRange {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t size;  // of the file
};
std::optional<ContentRange> parse_content_range(std::string_view text);  // bytes 0-99/1000

// A file of a server that gives parts of files. All of it may be used from many threads.
class RemoteFile {
 public:
  // Asks for the first `front` bytes, and by them for what there is to know. Of a server that gives no parts it keeps files of up
  // to `whole` bytes.
  static Result<std::unique_ptr<RemoteFile>> open(Address address, std::uint64_t front, StopToken stop,
                                                  std::uint64_t whole = kLargestWhole);

  const Version& version() const { return version_; }
  std::span<const std::byte> front() const {
    return front_;
  }  // the whole file if the server gives no parts and it is not too large
  bool gives_parts() const { return gives_parts_; }
  const Answer& first_answer() const { return first_answer_; }

  // Asks again for what is missing as long as something comes.
  Result<void> fetch(const Transfer& transfer) const;
  // The same, piece by piece, in order; false breaks off.
  Result<void> fetch(std::uint64_t begin, std::uint64_t end, const std::function<bool(std::span<const std::byte>)>& take) const;

 private:
  RemoteFile(Address address, StopToken stop, std::uint64_t whole);
  Result<void> read_front(std::uint64_t bytes);
  Result<void> take_first_answer(const Answer& answer, std::uint64_t bytes);
  std::optional<Error> check_part(const Answer& answer, std::uint64_t begin, std::uint64_t end) const;
  Request make_request(std::uint64_t begin, std::uint64_t end) const;
  void remember(const Answer& answer, const std::string& asked) const;
  std::optional<Error> give_up(const Answer& refused, const std::string& asked) const;

  Address address_;
  StopToken stop_;
  std::uint64_t whole_;
  Version version_;
  std::vector<std::byte> front_;
  Answer first_answer_;
  bool gives_parts_ = true;
  mutable std::mutex mutex_;
  mutable std::string direct_url_;  // where redirects led last time, empty if nowhere else
};

}  // namespace ballast::remote
