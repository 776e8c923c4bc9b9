#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <ballast/dtype.h>
#include <ballast/error.h>

// Converts the values of a tensor to text and back. Every value of every dtype in dtypes.h round-trips, including NaN payloads;
// see docs/formats/mlx-json.md.
namespace ballast::mlx_json {

// Whether a string, without its quotes, is a value: NaN, Infinity, -Infinity, nan:7fc00001.
bool is_special(std::string_view text);

// Parses one entry of `data`; a string has its quotes. Returns false and leaves `out` unchanged if it does not fit the dtype.
bool parse_value(DType dtype, std::string_view entry, std::byte* out);

// Parses up to `most` numbers from [at, end), each followed by a comma, advances `at`, and returns their number. Stops before
// anything that needs parse_value(): strings, values that do not fit, and the last value. *end must be NUL.
std::size_t parse_run(DType dtype, const char*& at, const char* end, std::size_t most, std::byte* out);

// Appends the values in `bytes`, separated by commas. Thread-safe for different `out`.
void append_values(DType dtype, std::span<const std::byte> bytes, std::string& out);

}  // namespace ballast::mlx_json
