#pragma once

#include <string>
#include <string_view>

namespace ballast {

// Makes text from a file safe to print: control characters, terminal escapes, bidirectional overrides, quotes, backslashes and
// bytes that are not UTF-8 become \n, \x1b, \u202e and so on.
std::string escape(std::string_view text);

// A path or URI without its password and without its query, which may contain signatures and tokens.
std::string without_secrets(const std::string& path);

}  // namespace ballast
