#pragma once

#include <string>
#include <vector>

#include <ballast/download.h>
#include <ballast/error.h>

#include "source/listing.h"

namespace ballast {

// A file to be fetched, with what is known of it.
struct WantedFile {
  ListedFile listed;
  std::string uri;
};

// Marks files that are not whole yet, and what is known of them.
constexpr const char* kIncompleteSuffix = ".ballast-incomplete";
constexpr const char* kIncompleteJournalSuffix = ".ballast-incomplete.journal";

// The files that a URI stands for, and that the options ask for. Their names lie below a folder, whatever the server says, and
// none is that of an unfinished file.
Result<std::vector<WantedFile>> list_wanted(const std::string& uri, const DownloadOptions& options);

}  // namespace ballast
