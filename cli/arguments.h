#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/lora.h>

namespace ballast::cli {

// Parsers of arguments. Errors are kInvalidArgument.

Result<DType> parse_dtype_argument(std::string_view text);  // bf16, F8_E4M3, float32

Result<std::uint64_t> parse_size(std::string_view text);  // 300MB, 1.5GB, 2GiB, 4096

// Splits at the first '='; `option` and what it expects are for the message.
Result<std::pair<std::string, std::string>> parse_pair(std::string_view option, std::string_view expected, std::string_view text);

// ADAPTER or ADAPTER=SCALE. What follows the last '=' is a scale if it is a number.
Lora parse_lora(std::string_view text);
std::vector<Lora> parse_loras(const std::vector<std::string>& texts);

}  // namespace ballast::cli
