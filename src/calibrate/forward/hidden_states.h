#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ballast/error.h>

#include "base/file_descriptor.h"

namespace ballast {

// The hidden states of all tokens between two layers: a matrix of F32 in memory or, if it is larger than a limit, in an unnamed
// temporary file.
class HiddenStates {
 public:
  static Result<HiddenStates> make(std::uint64_t tokens, std::uint64_t columns, std::uint64_t most_memory);

  std::uint64_t columns() const { return columns_; }
  bool is_spilled() const { return memory_.empty(); }

  // Whole rows, beginning with that of `token`.
  Result<void> read(std::uint64_t token, std::span<float> rows) const;
  Result<void> write(std::uint64_t token, std::span<const float> rows);

 private:
  HiddenStates(std::uint64_t columns, std::vector<float> memory, FileDescriptor file)
      : columns_(columns), memory_(std::move(memory)), file_(std::move(file)) {}

  std::uint64_t columns_;
  std::vector<float> memory_;
  FileDescriptor file_;
};

}  // namespace ballast
