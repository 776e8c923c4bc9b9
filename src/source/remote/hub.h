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
struct HubPlace {
  std::string repo;      // org/repo
  std::string revision;  // main, if none is named
  std::string file;      // or folder; may be empty

  std::string uri() const;
  bool is_pinned() const;  // to a commit, which never changes
};

Result<HubPlace> parse_hub_place(const std::string& uri);

// The same with the commit that the revision stands for now. Takes what the cache says where the network is not to be used, or
// is not there.
Result<HubPlace> pin(HubPlace place, const StopToken& stop);

// These take pinned places.
Address hub_address(const HubPlace& place);
Result<std::vector<ListedFile>> list_hub(const HubPlace& folder, const StopToken& stop);

// Of a page of a list, the files whose paths begin with `prefix`, without it.
Result<std::vector<ListedFile>> parse_hub_page(const std::string& text, std::string_view prefix);

bool is_hub_offline();  // by the user's wish
bool is_hub_silent();   // it did not answer when it was asked last, and the cache has what it was asked for

// The cache that all programs of a user share.
class HubCache {
 public:
  explicit HubCache(const std::string& repo);

  // The path of a file that is there.
  std::optional<std::string> find(const std::string& commit, const std::string& file) const;
  std::vector<ListedFile> list(const std::string& commit) const;
  std::optional<std::string> commit_of(const std::string& revision) const;

  std::string snapshot(const std::string& commit) const;  // the folder of a commit's files
  std::string blob(const std::string& etag) const;        // where a file's bytes are

  // Makes a file of a commit from a blob that is there.
  Result<void> link(const std::string& commit, const std::string& file, const std::string& etag) const;
  Result<void> set_revision(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_;
};

}  // namespace ballast::remote
