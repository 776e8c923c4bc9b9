#pragma once

#include <memory>

#include "source/remote/remote_file.h"
#include "source/source.h"

namespace ballast::remote {

// Concurrent requests of one read.
constexpr unsigned kConnections = 16;

// A source that reads a remote file. Bytes that RemoteFile::open() has fetched are not requested again.
std::unique_ptr<Source> open_remote_source(std::unique_ptr<RemoteFile> file);

}  // namespace ballast::remote
