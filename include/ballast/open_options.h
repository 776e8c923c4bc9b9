#pragma once

#include <cstdint>

#include <ballast/work.h>

namespace ballast {

enum class Access {
  kAuto,   // kMmap, but kPread on network filesystems, where page faults are slow
  kMmap,   // views borrow from a map made at the first view
  kPread,  // no map, no views: every access copies
};

enum class Strictness {
  kStrict,     // what the reference accepts, less what other readers would take differently: see docs/formats/safetensors.md
  kReference,  // exactly what the reference accepts; of two tensors with one name, the last wins
};

struct OpenOptions {
  Access access = Access::kAuto;
  Strictness strictness = Strictness::kStrict;
  std::uint64_t max_header_bytes = 100'000'000;
  bool writable_views = false;  // writes to views stay in this process; the file does not change
  StopToken stop;               // also for what is read from a server later
};

}  // namespace ballast
