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
  bool values = false;  // look at every value
  ValueLimits limits;
  bool sha256 = false;
  WorkOptions work;
};

// One thing that is wrong with a model.
struct Defect {
  std::string check;    // one of VerifyReport::checks
  std::string message;  // names the file, the tensor and the two numbers
};

struct VerifiedFile {
  std::string path;
  std::uint64_t size = 0;
  std::uint64_t tensors = 0;
  std::string sha256;  // hexadecimal; empty unless asked for
};

struct VerifyReport {
  std::vector<VerifiedFile> files;
  std::vector<std::string>
      checks;  // those made: layout, header, index or shards, config, architecture, values, sha256, quantization
  std::vector<std::string> skipped;  // what was not checked, and why
  std::vector<Defect> defects;
  std::vector<std::string> warnings;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;

  bool ok() const { return defects.empty(); }
};

// Checks what opening checks, but goes on after the first defect; of a quantized model also the sizes of its parts, what its
// metadata says, and the checksums of its files where it has some. Fails only when it cannot check: the path is
// missing or cannot be read, a library is missing, or the work was cancelled.
Result<VerifyReport> verify_model(const std::string& path, const VerifyOptions& options = {});

}  // namespace ballast
