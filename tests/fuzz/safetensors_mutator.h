#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "format/safetensors/header.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace ballast {

// Nearly every mutant would fail because its header length is wrong. So most mutants get the length of their text, and as much
// data as the last number in the text requires.
inline std::size_t mutate_safetensors(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const std::size_t brace = file.rfind('}');
  if (seed % 8 == 0 || brace == std::string_view::npos || brace < safetensors::kLengthBytes) return size;
  const std::uint64_t data_start = brace + 1;
  const std::uint64_t length = data_start - safetensors::kLengthBytes;
  std::memcpy(data, &length, sizeof(length));

  constexpr std::string_view kDigits = "0123456789";
  const std::size_t last = file.find_last_of(kDigits, brace);
  if (last == std::string_view::npos || last < safetensors::kLengthBytes) return size;
  const std::size_t first = file.find_last_not_of(kDigits, last) + 1;
  std::uint64_t bytes = 0;
  std::from_chars(file.data() + first, file.data() + last + 1, bytes);
  if (bytes > max_size - data_start) return size;
  if (data_start + bytes > size) std::memset(data + size, 0, data_start + bytes - size);
  return data_start + bytes;
}

}  // namespace ballast
