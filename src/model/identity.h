#pragma once

#include <string>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// The files of a model as they are now, with the time of their last change: other text, other files.
Result<std::string> describe_files(const Model& model);

// Their names and sizes, as a JSON array.
std::string files_json(const Model& model);

}  // namespace ballast
