#include "format/gguf/value.h"

#include <array>
#include <cstring>

namespace ballast::gguf {
namespace {

template <class T>
T load(const Value& value) {
  T number{};
  std::memcpy(&number, value.bytes.data(), sizeof(T));
  return number;
}

template <class T>
std::optional<std::uint64_t> unsigned_of(const Value& value) {
  const T number = load<T>(value);
  return number < T{0} ? std::nullopt : std::optional(static_cast<std::uint64_t>(number));
}

// Removes a string from the front of `bytes`. The header was checked, so it is there.
std::string_view take_string(std::span<const std::byte>& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto text = bytes.subspan(sizeof length, length);
  bytes = bytes.subspan(sizeof length + length);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace

std::string_view name(ValueType type) {
  constexpr std::array<std::string_view, 13> kNames{"u8",   "i8",  "u16",   "i16", "u32", "i32", "f32",
                                                    "bool", "str", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

std::optional<std::uint64_t> Value::as_unsigned() const {
  if (is_array) return std::nullopt;
  switch (type) {
    case ValueType::kU8: return unsigned_of<std::uint8_t>(*this);
    case ValueType::kI8: return unsigned_of<std::int8_t>(*this);
    case ValueType::kU16: return unsigned_of<std::uint16_t>(*this);
    case ValueType::kI16: return unsigned_of<std::int16_t>(*this);
    case ValueType::kU32: return unsigned_of<std::uint32_t>(*this);
    case ValueType::kI32: return unsigned_of<std::int32_t>(*this);
    case ValueType::kU64: return unsigned_of<std::uint64_t>(*this);
    case ValueType::kI64: return unsigned_of<std::int64_t>(*this);
    default: return std::nullopt;
  }
}

std::optional<double> Value::as_float() const {
  if (is_array) return std::nullopt;
  if (type == ValueType::kF32) return load<float>(*this);
  if (type == ValueType::kF64) return load<double>(*this);
  return std::nullopt;
}

std::optional<std::string_view> Value::as_string() const {
  if (is_array || type != ValueType::kString) return std::nullopt;
  std::span<const std::byte> left = bytes;
  return take_string(left);
}

std::vector<std::string_view> Value::strings() const {
  if (!is_array || type != ValueType::kString) return {};
  std::vector<std::string_view> all;
  all.reserve(count);
  std::span<const std::byte> left = bytes;
  for (std::uint64_t i = 0; i < count; ++i) all.push_back(take_string(left));
  return all;
}

}  // namespace ballast::gguf
