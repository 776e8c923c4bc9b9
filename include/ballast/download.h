#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/work.h>

namespace ballast {

struct DownloadOptions {
  std::vector<std::string> include;  // globs of file names to download; empty: all files
  std::vector<std::string> exclude;  // globs of file names to leave out; applied after `include`
  std::string component;             // of a diffusers pipeline: download only this subfolder, to a subfolder of that name
  std::string variant;               // download only these weights, such as fp16; empty: all
  bool sync = true;                  // flush the files to disk before returning
  bool force = false;                // write into a directory with other files than those of the URI; they stay
  WorkOptions work;                  // only `progress` and `stop` are used
};

struct DownloadedFile {
  std::string path;
  std::uint64_t size = 0;
  bool already_complete = false;  // nothing was fetched
  std::string checksum;           // checksum that was verified, "sha256" or "git"; empty if only the size could be checked
};

struct DownloadReport {
  std::string folder;  // where the files are now
  std::vector<DownloadedFile> files;
  std::uint64_t fetched_bytes = 0;  // over the network
};

// Downloads a file, or all files of a model, with several requests in parallel. A file gets its final name once it is complete
// and its checksum matches. Partial data stays in NAME.ballast-incomplete, and the next call resumes from it unless the file has
// changed on the server. An empty `folder` means the local Hugging Face cache and is allowed for hf:// URIs only.
Result<DownloadReport> download(const std::string& uri, const std::string& folder, const DownloadOptions& options = {});

}  // namespace ballast
