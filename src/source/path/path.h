#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/open_options.h>

#include "source/listing.h"
#include "source/remote/remote_file.h"
#include "source/source.h"

namespace ballast {

// Access to files and folders by local paths or by http://, https://, s3:// and hf:// URIs. Error messages do not contain the
// path; the caller adds it. Messages about a file below the path do contain its name.

struct ReadOptions {
  Access access = Access::kAuto;
  MapMode map_mode = MapMode::kReadOnly;
  StopToken stop;
};

inline ReadOptions read_options(const OpenOptions& options) {
  return {.access = options.access,
          .map_mode = options.writable_views ? MapMode::kCopyOnWrite : MapMode::kReadOnly,
          .stop = options.stop};
}

Result<std::unique_ptr<Source>> open_path(const std::string& path, const ReadOptions& options = {});

// Reads a small text file such as a config or an index.
Result<std::string> read_text(const std::string& path, const ReadOptions& options = {});

// Whether a path is a folder. A URI is a folder unless its last part has a file suffix of models, see has_file_suffix().
bool is_folder(const std::string& path);
// Whether an error means that an optional file does not exist. A server that denies access counts too: some answer 403 for files
// that do not exist.
bool is_absent(const Error& error);
Result<bool> exists(const std::string& path, const ReadOptions& options = {});
std::uint64_t size_of(const std::string& file);  // 0: unknown

// The files directly in a folder, sorted by name. HTTP servers cannot list files, so each well-known name is requested.
Result<std::vector<ListedFile>> list_folder(const std::string& folder, const ReadOptions& options = {});

// Like list_folder(), with the files of all folders below. Hidden local files and folders are left out, and links to folders are
// not followed.
Result<std::vector<ListedFile>> list_tree(const std::string& folder, const ReadOptions& options = {});

// The address of the file that a URI names.
Result<remote::Address> address_of(const std::string& uri);

// Replaces the revision of an hf:// URI by its commit, so that later reads see the same files. Returns other paths unchanged.
Result<std::string> pin_path(const std::string& path, const ReadOptions& options = {});

}  // namespace ballast
