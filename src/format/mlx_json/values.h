#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <ballast/dtype.h>
#include <ballast/error.h>

// The values of a tensor as text and back. Every value of a dtype in the table of dtypes.h survives the way through its text, NaN
// payloads included: docs/formats/mlx-json.md says how.
namespace ballast::mlx_json {

// Whether a string, without its quotes, can stand for a value: NaN, Infinity, -Infinity, nan:7fc00001.
bool is_special(std::string_view text);

// Reads one entry of `data`, a string with its quotes. False where it is none that the dtype can hold; `out` is then as it was.
bool parse_value(DType dtype, std::string_view entry, std::byte* out);

// Reads at most `most` numbers from [at, end), each of which a comma follows, and moves `at` to what comes next. Stops before
// what takes a longer look: white space other than one space, strings, values that do not fit. *end must be NUL. Returns how
// many.
std::size_t parse_run(DType dtype, const char*& at, const char* end, std::size_t most, std::byte* out);

// Appends the values in `bytes`, with commas between them. May be called from several threads.
void append_values(DType dtype, std::span<const std::byte> bytes, std::string& out);

}  // namespace ballast::mlx_json
