#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ballast {

// Codes of 2 to 8 bits as one stream, lowest bits first: code i starts at bit i * bits. Unused bits of the last byte
// are 0.
constexpr std::size_t packed_size(unsigned bits, std::size_t count) { return (count * bits + 7) / 8; }

// Fills packed_size() bytes. Every code is below 2^bits.
void pack_codes(unsigned bits, std::span<const std::uint8_t> codes, std::byte* out);

// Reads packed_size() bytes.
void unpack_codes(unsigned bits, const std::byte* packed, std::span<std::uint8_t> codes);

}  // namespace ballast
