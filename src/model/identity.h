#pragma once

#include <string>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// A text that identifies the files of a model and their current content: it changes when a file changes.
Result<std::string> describe_files(const Model& model);

// The names and sizes of the files, as a JSON array.
std::string files_json(const Model& model);

}  // namespace ballast
