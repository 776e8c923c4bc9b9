#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ballast::gguf {

// A ggml type: how many elements a block has, and how many bytes.
struct BlockType {
  std::uint32_t number;
  std::string_view name;
  unsigned elements;
  unsigned bytes;
};

// https://github.com/ggml-org/llama.cpp/blob/master/ggml/include/ggml.h. Numbers that are missing were removed.
inline constexpr auto kBlockTypes = std::to_array<BlockType>({
    {.number = 0, .name = "F32", .elements = 1, .bytes = 4},
    {.number = 1, .name = "F16", .elements = 1, .bytes = 2},
    {.number = 2, .name = "Q4_0", .elements = 32, .bytes = 18},
    {.number = 3, .name = "Q4_1", .elements = 32, .bytes = 20},
    {.number = 6, .name = "Q5_0", .elements = 32, .bytes = 22},
    {.number = 7, .name = "Q5_1", .elements = 32, .bytes = 24},
    {.number = 8, .name = "Q8_0", .elements = 32, .bytes = 34},
    {.number = 9, .name = "Q8_1", .elements = 32, .bytes = 36},
    {.number = 10, .name = "Q2_K", .elements = 256, .bytes = 84},
    {.number = 11, .name = "Q3_K", .elements = 256, .bytes = 110},
    {.number = 12, .name = "Q4_K", .elements = 256, .bytes = 144},
    {.number = 13, .name = "Q5_K", .elements = 256, .bytes = 176},
    {.number = 14, .name = "Q6_K", .elements = 256, .bytes = 210},
    {.number = 15, .name = "Q8_K", .elements = 256, .bytes = 292},
    {.number = 16, .name = "IQ2_XXS", .elements = 256, .bytes = 66},
    {.number = 17, .name = "IQ2_XS", .elements = 256, .bytes = 74},
    {.number = 18, .name = "IQ3_XXS", .elements = 256, .bytes = 98},
    {.number = 19, .name = "IQ1_S", .elements = 256, .bytes = 50},
    {.number = 20, .name = "IQ4_NL", .elements = 32, .bytes = 18},
    {.number = 21, .name = "IQ3_S", .elements = 256, .bytes = 110},
    {.number = 22, .name = "IQ2_S", .elements = 256, .bytes = 82},
    {.number = 23, .name = "IQ4_XS", .elements = 256, .bytes = 136},
    {.number = 24, .name = "I8", .elements = 1, .bytes = 1},
    {.number = 25, .name = "I16", .elements = 1, .bytes = 2},
    {.number = 26, .name = "I32", .elements = 1, .bytes = 4},
    {.number = 27, .name = "I64", .elements = 1, .bytes = 8},
    {.number = 28, .name = "F64", .elements = 1, .bytes = 8},
    {.number = 29, .name = "IQ1_M", .elements = 256, .bytes = 56},
    {.number = 30, .name = "BF16", .elements = 1, .bytes = 2},
    {.number = 34, .name = "TQ1_0", .elements = 256, .bytes = 54},
    {.number = 35, .name = "TQ2_0", .elements = 256, .bytes = 66},
    {.number = 39, .name = "MXFP4", .elements = 32, .bytes = 17},
    {.number = 40, .name = "NVFP4", .elements = 64, .bytes = 36},
    {.number = 41, .name = "Q1_0", .elements = 128, .bytes = 18},
    {.number = 42, .name = "Q2_0", .elements = 64, .bytes = 18},
});

// Null for an unknown number.
constexpr const BlockType* find_block_type(std::uint32_t number) {
  const auto* const found = std::ranges::find(kBlockTypes, number, &BlockType::number);
  return found == kBlockTypes.end() ? nullptr : found;
}

}  // namespace ballast::gguf
