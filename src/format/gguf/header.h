#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.h>
#include <ballast/tensor.h>

#include "base/bytes.h"
#include "format/gguf/block_types.h"
#include "format/gguf/value.h"
#include "source/source.h"

namespace ballast::gguf {

// The table of a GGUF file: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Names and values point into the bytes that
// it was parsed from.

struct Tensor {
  std::string_view name;
  Shape shape;  // rows first, as in SafeTensors; the file has the reverse
  const BlockType* type = nullptr;
  std::uint64_t begin = 0;  // from `data_start`
  std::uint64_t end = 0;
};

struct Table {
  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::uint64_t data_start = 0;
  std::vector<std::pair<std::string_view, Value>> metadata;  // in the order of the file
  std::vector<Tensor> tensors;                               // likewise, which is also the order of their data
  LargeVector<std::uint64_t> dims;                           // the shapes point into it

  const Value* find(std::string_view key) const;  // null if there is no such key
};

// Parses the table of a file of `file_size` bytes and checks all numbers against that size and against each other. `front` is the
// start of the file; empty if it ends before the table does. Does no I/O.
Result<std::optional<Table>> parse_table(std::span<const std::byte> front, std::uint64_t file_size);

// A table with the bytes that it points into.
struct Header {
  Bytes bytes;
  Table table;
};

// Reads no more than about twice the table. A table that ends after `most_bytes` is refused.
Result<Header> read_header(const Source& source, std::uint64_t most_bytes = 100'000'000);

}  // namespace ballast::gguf
