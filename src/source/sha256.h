#pragma once

#include <functional>
#include <string>

#include <ballast/error.h>

#include "source/source.h"

namespace ballast {

// The SHA-256 of all bytes, in hexadecimal. `advance` hears of every block read; false cancels.
Result<std::string> sha256(const Source& source, const std::function<bool(std::uint64_t bytes)>& advance = {});

}  // namespace ballast
