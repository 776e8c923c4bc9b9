#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace ballast::safetensors {

// What the bytes look like if they are something else that people have lying about under a .safetensors name, for an error
// message: "; this looks like …", or nothing.
std::string_view guess_format(std::span<const std::byte> front);

}  // namespace ballast::safetensors
