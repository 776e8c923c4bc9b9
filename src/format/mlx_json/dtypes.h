#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <ballast/dtype.h>

namespace ballast::mlx_json {

struct Spelling {
  DType dtype;
  std::string_view name;
  std::optional<std::uint8_t> code;  // number that some writers use instead of the name
};

// Every dtype that MLX JSON can store.
inline constexpr std::array<Spelling, 13> kSpellings{{
    {.dtype = DType::kF32, .name = "float32", .code = 0},
    {.dtype = DType::kF16, .name = "float16", .code = 2},
    {.dtype = DType::kBF16, .name = "bfloat16", .code = 3},
    {.dtype = DType::kF64, .name = "float64", .code = {}},
    {.dtype = DType::kI8, .name = "int8", .code = {}},
    {.dtype = DType::kI16, .name = "int16", .code = {}},
    {.dtype = DType::kI32, .name = "int32", .code = 1},
    {.dtype = DType::kI64, .name = "int64", .code = {}},
    {.dtype = DType::kU8, .name = "uint8", .code = {}},
    {.dtype = DType::kU16, .name = "uint16", .code = {}},
    {.dtype = DType::kU32, .name = "uint32", .code = 4},
    {.dtype = DType::kU64, .name = "uint64", .code = {}},
    {.dtype = DType::kBool, .name = "bool", .code = {}},
}};

// Null for a dtype that MLX JSON cannot store.
constexpr const Spelling* find_spelling(DType dtype) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.dtype == dtype) return &spelling;
  }
  return nullptr;
}

}  // namespace ballast::mlx_json
