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

// The files of a URI that the options select. Names are safe: relative, without "..", and not reserved for incomplete files.
Result<std::vector<WantedFile>> list_wanted(const std::string& uri, const DownloadOptions& options);

}  // namespace ballast
