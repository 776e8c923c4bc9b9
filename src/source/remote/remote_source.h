#pragma once

#include <memory>

#include "source/remote/remote_file.h"
#include "source/source.h"

namespace ballast::remote {

// How many requests are under way at a time for one read.
constexpr unsigned kConnections = 16;

// The bytes of a file on a server. What the first request brought is not asked for again.
std::unique_ptr<Source> open_remote_source(std::unique_ptr<RemoteFile> file);

}  // namespace ballast::remote
