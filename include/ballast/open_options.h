#pragma once

#include <cstdint>
#include <string>

#include <ballast/work.h>

namespace ballast {

enum class Access {
  kAuto,   // kMmap; on network filesystems, where page faults are slow, kPread
  kMmap,   // the file is mapped at the first view
  kPread,  // no mapping and no views: every access copies
};

enum class Strictness {
  kStrict,     // also refuses files that readers interpret differently; see docs/formats/safetensors.md
  kReference,  // accepts exactly what the reference implementation does; of two tensors with the same name, the last wins
};

struct OpenOptions {
  Access access = Access::kAuto;
  Strictness strictness = Strictness::kStrict;
  std::uint64_t max_header_bytes = 100'000'000;
  bool writable_views = false;  // writes to views are private to this process; the file does not change
  std::string component;        // of a diffusers pipeline: opens this subfolder of the path, see <ballast/pipeline.h>
  std::string variant;          // such as fp16: opens model.fp16.safetensors instead of model.safetensors
  StopToken stop;               // also cancels later reads from a server
};

}  // namespace ballast
