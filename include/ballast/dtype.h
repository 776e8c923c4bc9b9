#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ballast {

// The 22 element types of SafeTensors, in the order in which its writer ranks them: in a file, higher ranks come first.
enum class DType : std::uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

enum class NumberKind : std::uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex };

struct DTypeInfo {
  std::string_view name;  // as in a SafeTensors header
  std::uint8_t bits;      // per element; F4 and F6 are packed
  NumberKind kind;
};

inline constexpr std::array<DTypeInfo, 22> kDTypes{{
    {.name = "BOOL", .bits = 8, .kind = NumberKind::kBool},
    {.name = "F4", .bits = 4, .kind = NumberKind::kFloat},
    {.name = "F6_E2M3", .bits = 6, .kind = NumberKind::kFloat},
    {.name = "F6_E3M2", .bits = 6, .kind = NumberKind::kFloat},
    {.name = "U8", .bits = 8, .kind = NumberKind::kUnsigned},
    {.name = "I8", .bits = 8, .kind = NumberKind::kSigned},
    {.name = "F8_E5M2", .bits = 8, .kind = NumberKind::kFloat},
    {.name = "F8_E4M3", .bits = 8, .kind = NumberKind::kFloat},
    {.name = "F8_E8M0", .bits = 8, .kind = NumberKind::kFloat},
    {.name = "F8_E4M3FNUZ", .bits = 8, .kind = NumberKind::kFloat},
    {.name = "F8_E5M2FNUZ", .bits = 8, .kind = NumberKind::kFloat},
    {.name = "I16", .bits = 16, .kind = NumberKind::kSigned},
    {.name = "U16", .bits = 16, .kind = NumberKind::kUnsigned},
    {.name = "F16", .bits = 16, .kind = NumberKind::kFloat},
    {.name = "BF16", .bits = 16, .kind = NumberKind::kFloat},
    {.name = "I32", .bits = 32, .kind = NumberKind::kSigned},
    {.name = "U32", .bits = 32, .kind = NumberKind::kUnsigned},
    {.name = "F32", .bits = 32, .kind = NumberKind::kFloat},
    {.name = "C64", .bits = 64, .kind = NumberKind::kComplex},
    {.name = "F64", .bits = 64, .kind = NumberKind::kFloat},
    {.name = "I64", .bits = 64, .kind = NumberKind::kSigned},
    {.name = "U64", .bits = 64, .kind = NumberKind::kUnsigned},
}};

constexpr const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }
constexpr std::string_view name(DType dtype) { return info(dtype).name; }
constexpr unsigned bits(DType dtype) { return info(dtype).bits; }

// Case-sensitive: "F32" is a dtype, "f32" is not.
constexpr std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace ballast
