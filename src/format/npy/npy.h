#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/tensor.h>

namespace ballast {

// The dtype as NumPy names it in an .npy file, such as <f4; empty if NumPy has no such dtype.
std::string_view npy_descriptor(DType dtype);

// What precedes the values in an .npy file, version 1.0.
std::string npy_header(DType dtype, Shape shape);

// An array in an .npy file. Borrows the bytes of the file.
struct NpyArray {
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

bool is_npy(std::span<const std::byte> file);
// Accepts little-endian values in C order, versions 1.0 to 3.0.
Result<NpyArray> parse_npy(std::span<const std::byte> file);

}  // namespace ballast
