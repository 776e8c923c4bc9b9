#pragma once

#include <string>
#include <vector>

#include <ballast/download.h>
#include <ballast/error.h>

#include "source/listing.h"

namespace ballast {

// A file to download.
struct WantedFile {
  ListedFile listed;
  std::string uri;
};

// Suffixes of incomplete files and their journals.
constexpr const char* kIncompleteSuffix = ".ballast-incomplete";
constexpr const char* kIncompleteJournalSuffix = ".ballast-incomplete.journal";

struct Wanted {
  std::vector<WantedFile> files;   // names are safe: relative, without "..", and not reserved for incomplete files
  std::vector<std::string> names;  // of all files that the URI stands for, also those that the options leave out
};

// The files of a URI, and those that the options select.
Result<Wanted> list_wanted(const std::string& uri, const DownloadOptions& options);

}  // namespace ballast
