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

// Files and folders by paths of this machine or by URIs: http://, https://, s3:// and hf://. Errors do not name the path, but
// for what is said of files below it.

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

// A whole small text file, such as a config or an index.
Result<std::string> read_text(const std::string& path, const ReadOptions& options = {});

// Whether a path stands for several files. A URI over HTTP does unless its name has one of the endings that files of weights and
// their companions have.
bool is_folder(const std::string& path);
// Whether an error means that a file does not exist, or that a server refuses to say: this is asked of what may be there beside
// a file that could be read.
bool is_absent(const Error& error);
Result<bool> exists(const std::string& path, const ReadOptions& options = {});
std::uint64_t size_of(const std::string& file);  // 0 where nobody knows

// The files of a folder, in the order of their names, without those of folders below it. Over HTTP nobody can tell which there
// are: it is those of the names that models usually have that the server has.
Result<std::vector<ListedFile>> list_folder(const std::string& folder, const ReadOptions& options = {});

// Likewise with those of folders below it.
Result<std::vector<ListedFile>> list_tree(const std::string& folder, const ReadOptions& options = {});

// How to ask a server for the file that a URI stands for.
Result<remote::Address> address_of(const std::string& uri);

// The same path, which from now on means the same files: a revision of the hub becomes the commit that it stands for.
Result<std::string> pin_path(const std::string& path, const ReadOptions& options = {});

}  // namespace ballast
