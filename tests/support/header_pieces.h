#pragma once

#include <algorithm>
#include <string_view>

#include <gmock/gmock.h>

#include "format/safetensors/header.h"
#include "tests/support/files.h"

namespace ballast::test {

inline bool same_tensor(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.begin == b.begin && a.end == b.end && std::ranges::equal(a.shape, b.shape);
}

// Expects that reading the header in pieces, initially of this size, gives the same as `whole`, or nothing if that is an error.
inline void expect_same_in_pieces(std::string_view file, const Result<safetensors::Header>& whole,
                                  const safetensors::HeaderOptions& options, std::size_t piece) {
  const auto data_start = safetensors::read_data_start(as_bytes(file), file.size(), options);
  if (!data_start) return;
  const auto read = safetensors::read_header(*open_memory(as_bytes(file)), *data_start, options, piece);
  if (!read) {
    EXPECT_TRUE(fails(whole, read.error().code, read.error().message)) << "in pieces of " << piece;
    return;
  }
  EXPECT_EQ(read->has_value(), whole.has_value()) << "in pieces of " << piece;
  if (!*read || !whole) return;
  const safetensors::Header& header = **read;
  EXPECT_EQ(header.data_start, whole->data_start);
  EXPECT_EQ(header.metadata, whole->metadata);
  EXPECT_EQ(header.has_metadata, whole->has_metadata);
  EXPECT_TRUE(std::ranges::equal(header.tensors, whole->tensors, same_tensor)) << "in pieces of " << piece;
  for (std::uint32_t i = 0; i < header.tensors.size(); ++i) {
    EXPECT_EQ(header.index.find(header.tensors, header.tensors[i].name), i) << "in pieces of " << piece;
  }
}

// Parses a header, and expects the same result when it is read in pieces.
inline Result<safetensors::Header> parse_both_ways(std::string_view file, const safetensors::HeaderOptions& options) {
  auto whole = safetensors::parse_header(as_bytes(file), file.size(), options);
  for (const std::size_t piece : {1U, 2U, 3U, 7U, 16U, 61U, 256U, 4096U}) expect_same_in_pieces(file, whole, options, piece);
  return whole;
}

}  // namespace ballast::test
