#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast::test {

// The name of a code in the protocol of the probes.
inline std::string_view probe_name(Errc code) {
  switch (code) {
    case Errc::kIo: return "io";
    case Errc::kWrite: return "write";
    case Errc::kCorrupt: return "corrupt";
    case Errc::kUnsupported: return "unsupported";
    case Errc::kNotFound: return "not_found";
    case Errc::kInvalidArgument: return "invalid_argument";
    case Errc::kBelowMinimum: return "below_minimum";
    case Errc::kCancelled: return "cancelled";
  }
  return "?";
}

inline std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

inline std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes(text.size() / 2);
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(text[2 * i]) * 16 + digit(text[2 * i + 1]));
  return bytes;
}

}  // namespace ballast::test
