#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/files.h"

namespace ballast::test {

inline std::string gguf_string(std::string_view text) { return raw({std::uint64_t{text.size()}}).append(text); }

// Builds a GGUF file. `count_keys` and `count_tensors` are what the file claims, right or wrong.
class GgufFile {
 public:
  explicit GgufFile(std::uint32_t version = 3, std::uint64_t alignment = 32) : version_(version), alignment_(alignment) {}

  // `value` as in the file: the type, then the bytes.
  GgufFile& key(std::string_view name, std::string_view value) {
    keys_ += gguf_string(name).append(value);
    ++count_keys;
    return *this;
  }
  GgufFile& key(std::string_view name, std::uint32_t number) { return key(name, raw({kU32, number})); }
  GgufFile& text(std::string_view name, std::string_view value) { return key(name, raw({kString}) + gguf_string(value)); }
  GgufFile& texts(std::string_view name, const std::vector<std::string>& values) {
    std::string bytes = raw({kArray, kString}) + raw({std::uint64_t{values.size()}});
    for (const std::string& value : values) bytes += gguf_string(value);
    return key(name, bytes);
  }
  // `ne` as in the file: columns first.
  GgufFile& tensor(std::string_view name, const std::vector<std::uint64_t>& ne, std::uint32_t type, std::string_view data) {
    return tensor_at(name, ne, type, data_.size(), data);
  }
  GgufFile& tensor_at(std::string_view name, const std::vector<std::uint64_t>& ne, std::uint32_t type, std::uint64_t offset,
                      std::string_view data) {
    tensors_ += gguf_string(name) + raw({static_cast<std::uint32_t>(ne.size())});
    for (const std::uint64_t dim : ne) tensors_ += raw({dim});
    tensors_ += raw({type}) + raw({offset});
    data_ += data;
    pad(data_);
    ++count_tensors;
    return *this;
  }

  std::string bytes() const {
    std::string all = "GGUF" + raw({version_}) + raw({count_tensors, count_keys}) + keys_ + tensors_;
    if (!data_.empty()) pad(all);
    return all + data_;
  }

  std::uint64_t count_keys = 0;
  std::uint64_t count_tensors = 0;

 private:
  static constexpr std::uint32_t kU32 = 4;
  static constexpr std::uint32_t kString = 8;
  static constexpr std::uint32_t kArray = 9;

  void pad(std::string& bytes) const { bytes.resize((bytes.size() + alignment_ - 1) / alignment_ * alignment_); }

  std::uint32_t version_;
  std::uint64_t alignment_;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

}  // namespace ballast::test
