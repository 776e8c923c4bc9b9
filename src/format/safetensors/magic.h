#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ballast::safetensors {

// Recognizes other file formats that are often found under a .safetensors name. Returns the end of an error message, "; this
// looks like …" with what to do, or nothing.
std::string_view guess_format(std::span<const std::byte> front);

}  // namespace ballast::safetensors
