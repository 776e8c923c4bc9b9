#pragma once

#include <string>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/http.h"

namespace ballast::remote {

// What a server says a file's sum is.
struct ExpectedSum {
  std::string kind;  // sha256, git, or empty if it does not say
  std::string hex;
};

// By its place in a list, and what was answered about it.
ExpectedSum expected_sum(const ListedFile& listed, const Answer& answer);

// Whether it is so many digits, in small letters.
bool is_hex(std::string_view text, std::size_t digits);

// The sum of a file of this machine, of the same kind as an expected one.
Result<std::string> sum_of(const std::string& path, const std::string& kind);

}  // namespace ballast::remote
