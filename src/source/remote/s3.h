#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/remote_file.h"

namespace ballast::remote {

// Resolves s3://bucket/key with the settings of the AWS tools: environment variables and files in ~/.aws.
Result<Address> s3_address(const std::string& uri);

// Sends a HEAD request for an object, whose response includes its checksums if S3 has any.
Result<Response> request_s3_checksums(const std::string& uri, const StopToken& stop);

// All objects below s3://bucket/folder, with names relative to it.
Result<std::vector<ListedFile>> list_s3(const std::string& uri, const StopToken& stop);

struct S3Page {
  std::vector<ListedFile> files;
  std::string next;  // token of the next page; empty on the last page
};

// Parses a page of an object list. Returns the objects whose keys start with `prefix`, without the prefix.
Result<S3Page> parse_s3_page(const std::string& xml, std::string_view prefix);

}  // namespace ballast::remote
