#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <ballast/error.h>
#include <ballast/open_options.h>

#include "format/tensor_table.h"
#include "source/source.h"

namespace ballast::safetensors {

inline constexpr std::uint64_t kLengthBytes = 8;

struct HeaderOptions {
  Strictness strictness = Strictness::kStrict;
  std::uint64_t max_header_bytes = 100'000'000;
};

using Header = TensorTable;

// Where tensor data begins in a file of `file_size` bytes, from its first bytes (eight, or all there are).
Result<std::uint64_t> read_data_start(std::span<const std::byte> front, std::uint64_t file_size,
                                      const HeaderOptions& options = {});

// Parses the header of a file of `file_size` bytes and checks every offset against that size. `front` may end where
// tensor data begins. Does no I/O, so mmap, remote and fuzzing share it.
Result<Header> parse_header(std::span<const std::byte> front, std::uint64_t file_size, const HeaderOptions& options = {});

// Likewise, but reads the header, which ends at `data_start`, piece by piece. Only the names are kept, which takes about half the
// memory for a long header; fresh memory is a large part of what opening costs.
// Nothing if a piece cannot be read or parsed: parse_header() on the whole text says why.
Result<std::optional<Header>> read_header(const Source& source, std::uint64_t data_start, const HeaderOptions& options = {},
                                          std::size_t piece = std::size_t{256} << 10);

}  // namespace ballast::safetensors
