#pragma once

#include <span>
#include <string>

#include <ballast/error.h>

namespace ballast {

// Fails if `path` is a directory with files that a model with these files would not replace. An empty directory is free, and so
// is one with a model that consists of these files, other weight files of usual names, and hidden files. With `resume`, so is one
// with partial files of an earlier run, or with only some of these files.
Result<void> check_free(const std::string& path, std::span<const std::string> names, bool resume = false);

// Fails if `path` is a directory with files other than these and hidden ones. For work that replaces files one by one and leaves
// all others.
Result<void> check_only(const std::string& path, std::span<const std::string> names);

}  // namespace ballast
