#pragma once

#include <cstdint>
#include <memory>

#include "source/source.h"

namespace ballast::remote {

struct ReadAheadOptions {
  std::uint64_t chunk_bytes = std::uint64_t{4} << 20;
  unsigned chunks = 8;  // limit of chunks in memory: being fetched, or fetched and not yet read
};

// Wraps a source so that it fetches in the background what expect() announced.
std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> source, ReadAheadOptions options = {});

}  // namespace ballast::remote
