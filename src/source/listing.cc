#include "source/listing.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"

namespace ballast {

Result<void> Listing::add_page(std::vector<ListedFile> page) {
  constexpr std::size_t kMostPages = 1000;
  constexpr std::size_t kMostFiles = 100'000;
  constexpr std::size_t kLongestName = 1024;  // the limit of S3
  if (++pages_ > kMostPages) return fail(Errc::kUnsupported, "the file list has more than {} pages", kMostPages);
  for (ListedFile& file : page) {
    if (file.name.size() > kLongestName) {
      return fail(Errc::kUnsupported, "the file name {} is longer than {} bytes", quote(file.name), kLongestName);
    }
    if (!names_.insert(file.name).second) return fail(Errc::kCorrupt, "the file list contains {} twice", quote(file.name));
    files_.push_back(std::move(file));
    if (files_.size() > kMostFiles) return fail(Errc::kUnsupported, "the folder has more than {} files", kMostFiles);
  }
  return {};
}

}  // namespace ballast
