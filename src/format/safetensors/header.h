#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <ballast/error.h>
#include <ballast/open_options.h>

#include "format/tensor_table.h"
#include "source/source.h"

namespace ballast::safetensors {

inline constexpr std::uint64_t kLengthBytes = 8;

struct HeaderOptions {
  Strictness strictness = Strictness::kStrict;
  std::uint64_t max_header_bytes = 100'000'000;
  std::string_view path;  // for what messages say about other formats
};

using Header = TensorTable;

// The offset of the tensor data in a file of `file_size` bytes. `front` has the first eight bytes, or all if there are fewer.
Result<std::uint64_t> read_data_start(std::span<const std::byte> front, std::uint64_t file_size,
                                      const HeaderOptions& options = {});

// Parses the header of a file of `file_size` bytes and checks every offset against that size. `front` must include the whole
// header. Does no I/O, so it serves mapped files, remote files and fuzzing.
Result<Header> parse_header(std::span<const std::byte> front, std::uint64_t file_size, const HeaderOptions& options = {});

// Like parse_header(), but reads the header, which ends at `data_start`, in pieces and keeps only the names. This takes about
// half the memory for a long header; new memory is a large part of the cost of opening. Returns nothing if a piece cannot be read
// or parsed; parse_header() on the whole header then gives the error.
Result<std::optional<Header>> read_header(const Source& source, std::uint64_t data_start, const HeaderOptions& options = {},
                                          std::size_t piece = std::size_t{256} << 10);

}  // namespace ballast::safetensors
