#pragma once

#include <string>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/http.h"

namespace ballast::remote {

// The checksum of a file as its server reports it.
struct ExpectedChecksum {
  std::string kind;  // sha256 or git; empty if the server reports none
  std::string hex;
};

// Finds the checksum in the file list's entry or in the headers of a response for the file.
ExpectedChecksum expected_checksum(const ListedFile& listed, const Response& response);

// Whether `text` consists of exactly `digits` lowercase hexadecimal digits.
bool is_hex(std::string_view text, std::size_t digits);

// Computes the checksum of a local file, of a kind as in ExpectedChecksum.
Result<std::string> checksum_of(const std::string& path, const std::string& kind);

}  // namespace ballast::remote
