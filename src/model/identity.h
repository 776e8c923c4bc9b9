#pragma once

#include <span>
#include <string>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// A text that identifies the files of a model and their current content: it changes when a file changes.
Result<std::string> describe_files(const Model& model);

// The same for one file. `identity` is that of its source; if it is empty, a local file is described by its inode and ctime.
Result<std::string> describe_file(const ModelFile& file, const std::string& identity);

// stem_of() the files, or "model" if they do not share one.
std::string stem_of_files(std::span<const std::string> files);

// The names and sizes of the files, with those of merged adapters, as a JSON array.
std::string files_json(const Model& model);

}  // namespace ballast
