#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ballast/tensor.h>

namespace ballast::cli {

std::string human_bytes(std::uint64_t bytes);                     // 1.19 GB; decimal units
std::string grouped(std::uint64_t number);                        // 596,049,920
std::string shape_text(Shape shape);                              // [1024, 3072]
std::string label_text(std::string_view name);                    // escaped; '' if empty
std::string counted(std::uint64_t count, std::string_view noun);  // 1 tensor, 310 tensors

// Orders runs of digits as numbers: layers.2 before layers.10.
bool natural_less(std::string_view a, std::string_view b);
}  // namespace ballast::cli
