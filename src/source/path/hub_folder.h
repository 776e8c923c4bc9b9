#pragma once

#include <optional>
#include <string>

namespace ballast {

// The cache of the Hugging Face Hub on disk: models--org--name/{blobs, refs, snapshots/COMMIT}, where the files of a snapshot are
// links to blobs that all snapshots share.

// Explains a folder of the cache that is not a snapshot, and names the path to give instead. Empty for other folders.
std::optional<std::string> describe_hub_folder(const std::string& folder);

// Whether writing to `path` would change the cache: it is in a snapshot, is a blob, or is a link to one.
bool is_hub_cached(const std::string& path);

}  // namespace ballast
