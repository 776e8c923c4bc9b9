#pragma once

#include <string>

#include <ballast/error.h>

#include "source/source.h"

namespace ballast {

// The whole of a small text file, such as a config or an index. More than 100 MB is kCorrupt.
Result<std::string> read_text(const Source& source);

// Likewise, of a file of this machine; errors do not name it.
Result<std::string> read_text_file(const std::string& path);

}  // namespace ballast
