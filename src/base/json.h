#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include <ballast/error.h>

namespace ballast {

// Parses a whole document; the result lives in `parser`. Also accepts what Python's json module writes: bare NaN and Infinity,
// which become strings, and integers of 19 digits and more, which become doubles.
Result<simdjson::dom::element> parse_json(simdjson::dom::parser& parser, std::string_view text);

// Accepts 1024 and 1024.0. Returns nothing if the value is not a whole number.
std::optional<std::int64_t> whole_number(simdjson::dom::element value);

// A value for use in messages, truncated if it is long.
std::string describe(simdjson::dom::element value);

// Appends `text` in quotes and escapes only what JSON requires. `text` must be UTF-8.
void append_json_string(std::string_view text, std::string& out);

bool is_utf8(std::string_view text);

}  // namespace ballast
