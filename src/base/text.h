#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ballast/tensor.h>
#include <ballast/text.h>

namespace ballast {

// 'name', escaped, and shortened in the middle if it is too long for one line.
std::string quote(std::string_view name);

// Converts ASCII letters only.
std::string lowercase(std::string_view text);

// Strips spaces, tabs and line ends at both ends.
std::string_view trimmed(std::string_view text);

// [2, 3]
std::string to_string(Shape shape);

// The length in bytes of the first character of `text`; 0 if `text` does not start with valid UTF-8.
std::size_t utf8_length(std::string_view text);

void append_utf8(std::string& out, std::uint32_t code);

}  // namespace ballast
