#pragma once

#include <string_view>

namespace ballast {

// Whether all of `text` matches. `*` matches any number of characters, including dots; `?` matches any one byte; `[abc]`, `[a-z]`
// and `[!a]` match one byte of a set. Takes at most |pattern| x |text| steps.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace ballast
