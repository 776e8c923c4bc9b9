#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ballast/sink.h>

#include "format/tensor_writer.h"

namespace ballast {

// What the library's own jobs ask of an output, besides what users may.
struct WriterExtras {
  std::span<const Companion> companions;
  std::string resume_key;
  std::span<const SideFile> side_files;
  std::string index_metadata;
  unsigned threads = 0;  // for what the writer does itself, such as writing numbers as text; 0: one per core
};

// create_sink() for the library's own jobs.
Result<std::unique_ptr<TensorWriter>> create_tensor_writer(const std::string& path, std::vector<TensorSpec> tensors,
                                                           const SinkOptions& options, const WriterExtras& extras = {});

}  // namespace ballast
