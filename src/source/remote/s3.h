#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/remote_file.h"

namespace ballast::remote {

// s3://bucket/key, by the settings that AWS's own tools have: environment and files below ~/.aws.
Result<Address> s3_address(const std::string& uri);

// All objects below s3://bucket/folder, by their names from there on.
Result<std::vector<ListedFile>> list_s3(const std::string& uri, const Interrupted& interrupted);

}  // namespace ballast::remote
