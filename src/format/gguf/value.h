#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ballast::gguf {

enum class ValueType : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

std::string_view name(ValueType type);  // u8, str

// A value of the metadata: one element, or an array of them. Borrows its bytes from the header.
struct Value {
  ValueType type = ValueType::kU8;  // of the elements; never kArray
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;  // as in the file; strings with their lengths

  // Empty unless the value is a single one of such a type.
  std::optional<std::uint64_t> as_unsigned() const;  // any integer that is not negative
  std::optional<double> as_float() const;            // F32 or F64
  std::optional<std::string_view> as_string() const;

  // The strings of an array; empty if it has other elements.
  std::vector<std::string_view> strings() const;
};

}  // namespace ballast::gguf
