#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "source/listing.h"
#include "source/remote/remote_file.h"

namespace ballast::remote {

// hf://org/repo[@revision][/file]
struct HubLocation {
  std::string repo;      // org/repo
  std::string revision;  // default: main
  std::string file;      // file or folder; may be empty

  std::string uri() const;
  bool is_pinned() const;  // the revision is a commit
};

Result<HubLocation> parse_hub_location(const std::string& uri);

// Replaces the revision by its current commit. Uses the local cache in offline mode and if the Hub is unreachable.
Result<HubLocation> pin(HubLocation location, const StopToken& stop);

// These need pinned locations.
Address hub_address(const HubLocation& location);
Result<std::vector<ListedFile>> list_hub(const HubLocation& folder, const StopToken& stop);

// Parses a page of a file list. Returns the files whose paths start with `prefix`, without the prefix.
Result<std::vector<ListedFile>> parse_hub_page(const std::string& text, std::string_view prefix);

bool is_hub_offline();      // HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set
bool is_hub_unreachable();  // the last request got no response, and the cache was used instead

// The error for a file that is not cached in offline mode.
std::unexpected<Error> fail_not_cached();

// The local cache, which is shared with huggingface_hub.
class HubCache {
 public:
  explicit HubCache(const std::string& repo);

  // The path of a cached file.
  std::optional<std::string> find(const std::string& commit, const std::string& file) const;
  std::vector<ListedFile> list(const std::string& commit) const;
  std::optional<std::string> commit_of(const std::string& revision) const;

  std::string snapshot(const std::string& commit) const;  // the folder with the files of a commit
  std::string blob(const std::string& etag) const;        // the path of a file's content

  // Adds a file to a commit's folder as a link to an existing blob.
  Result<void> link(const std::string& commit, const std::string& file, const std::string& etag) const;
  Result<void> set_revision(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_;
};

}  // namespace ballast::remote
