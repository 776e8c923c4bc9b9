#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/remote_file.h"

namespace ballast::remote {

// s3://bucket/key, by the settings that AWS's own tools have: environment and files below ~/.aws.
Result<Address> s3_address(const std::string& uri);

// What a HEAD says of an object, its sums among it, where S3 knows some.
Result<Answer> ask_s3_for_sums(const std::string& uri, const StopToken& stop);

// All objects below s3://bucket/folder, by their names from there on.
Result<std::vector<ListedFile>> list_s3(const std::string& uri, const StopToken& stop);

struct S3Page {
  std::vector<ListedFile> files;
  std::string next;  // token, empty on the last page
};

// Of a list of objects, those whose keys begin with `prefix`, without it.
Result<S3Page> parse_s3_page(const std::string& xml, std::string_view prefix);

}  // namespace ballast::remote
