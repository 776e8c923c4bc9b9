#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/work.h>

namespace ballast {

struct DownloadOptions {
  std::vector<std::string> include;  // globs of names: those that match one of them, or all if there are none
  std::vector<std::string> exclude;  // but for these
  bool sync = true;                  // wait until the files are on the disk
  WorkOptions work;                  // progress and stop only: the servers set the pace
};

struct DownloadedFile {
  std::string path;
  std::uint64_t size = 0;
  bool was_there = false;  // already complete
  std::string checked;  // "sha256" or "git" if its sum is what the server said; else nothing but its length is known to be right
};

struct DownloadReport {
  std::string folder;  // that has the files now
  std::vector<DownloadedFile> files;
  std::uint64_t fetched_bytes = 0;  // over the network
};

// Fetches a file or a model's files, several parts at a time. Files get their names when they are whole and their sums are
// right; what was fetched before a failure or a kill is kept in NAME.ballast-incomplete, and is resumed unless the server's
// file has changed. An empty `folder` stands for the cache of the hub, for models of the hub alone.
Result<DownloadReport> download(const std::string& uri, const std::string& folder, const DownloadOptions& options = {});

}  // namespace ballast
