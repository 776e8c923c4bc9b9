#include "convert/nonfinite.h"

#include <cstring>

namespace ballast {
namespace {

// Counts the codes with (code & mask) == pattern. The compiler vectorizes it.
template <class Code>
std::uint64_t count(std::span<const std::byte> bytes, Code mask, Code pattern) {
  std::uint64_t found = 0;
  for (std::size_t at = 0; at + sizeof(Code) <= bytes.size(); at += sizeof(Code)) {
    Code code;
    std::memcpy(&code, bytes.data() + at, sizeof(Code));
    found += (code & mask) == pattern ? 1 : 0;
  }
  return found;
}

template <class Code>
std::uint64_t count(std::span<const std::byte> bytes, Code exponent) {
  return count<Code>(bytes, exponent, exponent);
}

}  // namespace

std::uint64_t count_nonfinite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF64: return count<std::uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::kF32:
    case DType::kC64: return count<std::uint32_t>(bytes, 0x7f80'0000);
    case DType::kF16: return count<std::uint16_t>(bytes, 0x7c00);
    case DType::kBF16: return count<std::uint16_t>(bytes, 0x7f80);
    case DType::kF8E5M2: return count<std::uint8_t>(bytes, 0x7c);
    case DType::kF8E4M3: return count<std::uint8_t>(bytes, 0x7f);
    case DType::kF8E8M0: return count<std::uint8_t>(bytes, 0xff);
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz: return count<std::uint8_t>(bytes, 0xff, 0x80);
    default: return 0;
  }
}

}  // namespace ballast
