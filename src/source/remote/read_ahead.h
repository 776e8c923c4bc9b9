#pragma once

#include <cstdint>
#include <memory>

#include "source/source.h"

namespace ballast::remote {

struct ReadAheadOptions {
  std::uint64_t chunk_bytes = std::uint64_t{4} << 20;
  unsigned chunks = 8;  // at most so many are held: what was fetched and not read yet, and what is on its way
};

// The same source, which fetches ahead what it is told to expect.
std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> source, ReadAheadOptions options = {});

}  // namespace ballast::remote
