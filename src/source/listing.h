#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// A file in a local or remote folder.
struct ListedFile {
  std::string name;        // relative to the folder: tokenizer/vocab.json
  std::uint64_t size = 0;  // 0: unknown
  bool is_regular = true;  // false for a local folder
  std::string sha256;      // empty: unknown
  std::string etag;        // the file's name in the cache of the Hugging Face Hub; empty for other servers
};

// Collects the pages of a server's file list and enforces limits.
class Listing {
 public:
  Result<void> add_page(std::vector<ListedFile> page);

  std::vector<ListedFile> files() && { return std::move(files_); }

 private:
  std::vector<ListedFile> files_;
  std::set<std::string> names_;
  std::uint64_t pages_ = 0;
};

}  // namespace ballast
