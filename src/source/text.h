#pragma once

#include <string>

#include <ballast/error.h>

#include "source/source.h"

namespace ballast {

// Reads a small text file such as a config or an index. Fails with kCorrupt if it has more than 100 MB.
Result<std::string> read_text(const Source& source);

// The same for a local file. Error messages do not contain the path.
Result<std::string> read_text_file(const std::string& path);

}  // namespace ballast
