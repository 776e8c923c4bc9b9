#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/sink.h>

#include "format/tensor_writer.h"

namespace ballast {

// Options that only the library's own jobs use.
struct WriterExtras {
  std::string stem{kModelStem};  // of the files in a directory
  std::span<const Companion> companions;
  std::string resume_key;
  std::span<const SideFile> side_files;
  std::string index_metadata;
  unsigned threads = 0;  // for the writer's own work, such as formatting numbers as text; 0: one per core
};

// The suffix of a path that names a file of weights, not a directory, even if its format cannot be written; otherwise empty.
std::string_view file_suffix(std::string_view path);

// create_sink() for the library's own jobs.
Result<std::unique_ptr<TensorWriter>> create_tensor_writer(const std::string& path, std::vector<TensorSpec> tensors,
                                                           const SinkOptions& options, const WriterExtras& extras = {});

}  // namespace ballast
