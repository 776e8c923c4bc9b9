#pragma once

#include <string_view>

namespace ballast {

// Whether the whole of `text` matches: `*` any run of characters (dots included), `?` any one byte, `[abc]`,
// `[a-z]` and `[!a]` one byte of a set. Takes at most |pattern| x |text| steps.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace ballast
