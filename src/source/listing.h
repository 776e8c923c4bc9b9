#pragma once

#include <cstdint>
#include <string>

namespace ballast {

// A file of a folder, wherever that is.
struct ListedFile {
  std::string name;        // from the folder on: tokenizer/vocab.json
  std::uint64_t size = 0;  // 0 where it is not known
  bool is_regular = true;  // and no folder of this machine
  std::string sha256;      // empty where it is not known
  std::string etag;        // by which the hub's cache knows it; empty elsewhere
};

}  // namespace ballast
