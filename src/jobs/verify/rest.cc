#include "jobs/verify/rest.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <vector>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/magic.h"
#include "model/shards.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr const char* kOther = "weights of other formats";
constexpr const char* kEnds = "weights of other formats, except whether they are complete";
constexpr const char* kHeaders = "weights of other models, except their headers";
constexpr const char* kPointers = "Git LFS pointers, which are not downloaded";
constexpr const char* kFolders = "other files in folders";

Result<std::vector<std::byte>> read_part(const Source& source, std::uint64_t begin, std::uint64_t length) {
  std::vector<std::byte> bytes(length);
  TRY(source.read_at(begin, bytes));
  return bytes;
}

bool contains(std::span<const std::byte> bytes, std::string_view text) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).contains(text);
}

// A ZIP archive ends with a record that follows its directory, and a comment of at most 64 KiB.
Result<bool> has_zip_end(const Source& source) {
  constexpr std::uint64_t kMost = 22 + 65'535;
  const std::uint64_t length = std::min(source.size(), kMost);
  const auto end = TRY(read_part(source, source.size() - length, length));
  return contains(end, "PK\x05\x06");
}

struct Rest {
  bool was_checked = false;          // there are weight files, some of which could be checked
  std::vector<std::string> skipped;  // what was not checked, one line for each kind
  std::vector<std::string> defects;  // files that are truncated
};

class RestCheck {
 public:
  RestCheck(const Folder& folder, const OpenOptions& options) : folder_(folder), options_(options) {}

  Result<void> add(const std::string& name) {
    if (is_uri(folder_.path())) {
      names_[kOther].insert(name);
      return {};
    }
    const std::string path = join_path(folder_.path(), name);
    auto source = open_path(path, {.access = Access::kPread, .stop = options_.stop});
    if (!source) return defect(path, source.error().message);
    constexpr std::uint64_t kFront = 1024;
    const auto front = read_part(**source, 0, std::min((*source)->size(), kFront));
    if (!front) return fail_at(shown(path), front.error());
    if (safetensors::lfs_size(*front)) {
      names_[kPointers].insert(name);
    } else if (name.ends_with(kSafetensorsSuffix)) {
      names_[kHeaders].insert(name);
      rest_.was_checked = true;
      const auto shard = read_shard(path, std::move(*source), options_);
      if (!shard) rest_.defects.push_back(shard.error().message);
    } else if (contains(std::span(*front).first(std::min<std::size_t>(front->size(), 4)), "PK\x03\x04")) {
      names_[kEnds].insert(name);
      rest_.was_checked = true;
      const auto has_end = has_zip_end(**source);
      if (!has_end) return fail_at(shown(path), has_end.error());
      if (!*has_end)
        return defect(path, fmt::format("ZIP archive of {} bytes without an end: it is truncated", (*source)->size()));
    } else if (front->empty()) {
      return defect(path, "file of 0 bytes");
    } else {
      names_[kOther].insert(name);
    }
    return {};
  }

  void add_folder(std::string name) { names_[kFolders].insert(std::move(name)); }

  Rest finish() && {
    for (const char* kind : {kHeaders, kEnds, kOther, kPointers, kFolders}) {
      const auto found = names_.find(kind);
      if (found == names_.end()) continue;
      constexpr std::size_t kMost = 20;
      std::string line;
      for (const std::string& name : found->second | std::views::take(kMost)) line += (line.empty() ? "" : ", ") + escape(name);
      if (found->second.size() > kMost) line += fmt::format(" and {} more", found->second.size() - kMost);
      rest_.skipped.push_back(fmt::format("{}: {}", kind, line));
    }
    return std::move(rest_);
  }

 private:
  Result<void> defect(const std::string& path, std::string_view message) {
    rest_.was_checked = true;
    rest_.defects.push_back(fmt::format("{}: {}; download it again", shown(path), message));
    return {};
  }

  const Folder& folder_;
  const OpenOptions& options_;
  Rest rest_;
  std::map<std::string_view, std::set<std::string>> names_;
};

Result<Rest> check_rest(const Folder& folder, const Verified& verified, const OpenOptions& options) {
  std::set<std::string> own;
  for (const std::string& path : verified.weights) own.insert(file_name(path));
  const auto files = TRY(is_uri(folder.path()) ? folder.files() : folder.tree());
  RestCheck check(folder, options);
  for (const ListedFile& file : files) {
    const std::size_t slash = file.name.find('/');
    const bool is_weights = is_weights_name(file.name) && !file.name.ends_with(".index.json");
    if (slash != std::string::npos) {
      const std::string top = file.name.substr(0, slash);
      if (std::ranges::find(verified.folders, top) != verified.folders.end()) continue;
      if (!is_weights) check.add_folder(top);
    }
    const bool is_own = own.contains(file.name) || file_role(file.name) == FileRole::kSideWeights;
    if (!is_weights || is_own) continue;
    TRY(check.add(file.name));
  }
  return std::move(check).finish();
}

}  // namespace

Result<void> add_rest(const Folder& folder, const Verified& verified, const OpenOptions& options, VerifyReport& report) {
  constexpr const char* kCheck = "other weights";
  auto rest = check_rest(folder, verified, options);
  if (!rest && is_uri(folder.path())) return {};
  if (!rest) return std::unexpected(std::move(rest.error()));
  const bool is_new = std::ranges::find(report.checks, kCheck) == report.checks.end();
  if (rest->was_checked && is_new) report.checks.emplace_back(kCheck);
  for (std::string& message : rest->defects) report.defects.push_back({.check = kCheck, .message = std::move(message)});
  std::ranges::move(rest->skipped, std::back_inserter(report.skipped));
  return {};
}

}  // namespace ballast
