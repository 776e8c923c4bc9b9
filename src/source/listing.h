#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// A file of a folder, wherever that is.
struct ListedFile {
  std::string name;        // from the folder on: tokenizer/vocab.json
  std::uint64_t size = 0;  // 0 where it is not known
  bool is_regular = true;  // and no folder of this machine
  std::string sha256;      // empty where it is not known
  std::string etag;        // by which the hub's cache knows it; empty elsewhere
};

// What a server tells of a folder, page by page, within limits.
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
