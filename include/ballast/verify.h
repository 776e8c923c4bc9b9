#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/values.h>
#include <ballast/work.h>

namespace ballast {

struct VerifyOptions {
  OpenOptions open;
  bool values = false;  // check every value against `limits`
  ValueLimits limits;
  bool sha256 = false;
  WorkOptions work;
};

// One problem found in a model.
struct Defect {
  std::string check;      // one of VerifyReport::checks
  std::string message;    // names the file, the tensor and the two values
  std::string component;  // of a pipeline
};

struct VerifiedFile {
  std::string path;
  std::uint64_t size = 0;
  std::uint64_t tensors = 0;
  std::string sha256;  // hexadecimal; empty unless requested
};

struct VerifyReport {
  std::vector<VerifiedFile> files;
  // The checks made: layout, header, index or shards, config, architecture, other weights, values, sha256, quantization; of a
  // pipeline, also components.
  std::vector<std::string> checks;
  std::vector<std::string> skipped;  // what was not checked, and why
  std::vector<Defect> defects;
  std::vector<std::string> warnings;
  std::vector<std::string> components;  // the components of a pipeline that were checked
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;

  bool ok() const { return defects.empty(); }
};

// Checks all components of a diffusers pipeline, in one report. Of any other path: makes the same checks as opening a model, but
// continues after the first defect. For a quantized model, also checks the sizes of the stored parts, the metadata, and the
// checksums of the files if it has them. Weight files in a model directory that are not part of the model are only checked for
// being complete. Returns an error only if it cannot check: the path does not exist or cannot be read, a library is missing, or
// the work was cancelled.
Result<VerifyReport> verify_model(const std::string& path, const VerifyOptions& options = {});

}  // namespace ballast
