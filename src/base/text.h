#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ballast/tensor.h>
#include <ballast/text.h>

namespace ballast {

// 'name', escaped, and cut in the middle when it is too long for one line.
std::string quote(std::string_view name);

// With small letters for capital ones of ASCII.
std::string lowercase(std::string_view text);

// Without spaces, tabs and ends of lines around it.
std::string_view trimmed(std::string_view text);

// [2, 3]
std::string to_string(Shape shape);

// The length of the UTF-8 sequence that `text` begins with, 0 if it is none.
std::size_t utf8_length(std::string_view text);

void append_utf8(std::string& out, std::uint32_t code);

}  // namespace ballast
