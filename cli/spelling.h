#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace ballast::cli {

// What the user wrote for a setting that messages of the library name: bit_width is --bits. A name without an underscore counts
// only at the start of a message, after "path: " or after "(", because it may be an ordinary word elsewhere.
using Spelling = std::map<std::string, std::string, std::less<>>;

// The message in the user's words. Quoted names and paths stay as they are.
std::string spelled(std::string_view message, const Spelling& spelling);
std::vector<std::string> spelled(std::vector<std::string> messages, const Spelling& spelling);

Exit report(const Error& error, const Spelling& spelling);

}  // namespace ballast::cli
