#include <ballast/download.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/block_loop.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/download/list.h"
#include "output/file.h"
#include "output/journal.h"
#include "output/occupied.h"
#include "source/path/path.h"
#include "source/remote/expected_checksum.h"
#include "source/remote/hub.h"
#include "source/remote/remote_file.h"
#include "source/remote/s3.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using remote::RemoteFile;

constexpr unsigned kConnections = 8;
constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;

// A file to download, with its destination and state.
struct Item {
  WantedFile wanted;
  std::string path;
  std::unique_ptr<RemoteFile> remote;
  std::unique_ptr<Source> cached;  // from the hub's cache, instead of `remote`
  remote::ExpectedChecksum sum;
  DownloadedFile result;

  // While it is being written:
  std::mutex mutex;
  std::optional<OutputFile> file;
  std::optional<Journal> journal;
  std::chrono::steady_clock::time_point flushed;
  std::size_t parts_left = 0;

  std::uint64_t size() const { return cached ? cached->size() : remote->version().size; }
  bool has_parts() const { return cached || remote->supports_ranges(); }
  std::string last_modified() const { return cached ? "" : remote->version().last_modified; }
  std::string kept_path() const { return path + kIncompleteSuffix; }
  std::string journal_path() const { return path + kIncompleteJournalSuffix; }
  std::unexpected<Error> error_here(const Error& error) const { return fail_at(shown(wanted.uri), error); }

  // Identifies this version of the file, for resuming; empty if unknown.
  std::string mark() const {
    if (cached) return wanted.uri;  // with a commit in it
    const remote::Version& version = remote->version();
    return !version.etag.empty() ? version.etag : !version.last_modified.empty() ? version.last_modified : sum.hex;
  }
};

// Sets the server's modification time, by which a later run recognizes the file.
void set_time(const std::string& path, const std::string& http_date) {
  const auto time = remote::parse_date(http_date);
  if (!time) return;
  const std::array<timespec, 2> times{timespec{.tv_sec = *time, .tv_nsec = 0}, timespec{.tv_sec = *time, .tv_nsec = 0}};
  ::utimensat(AT_FDCWD, path.c_str(), times.data(), 0);
}

bool has_time(const std::string& path, const std::string& http_date) {
  struct stat status{};
  const auto time = remote::parse_date(http_date);
  return time && ::stat(path.c_str(), &status) == 0 && status.st_mtim.tv_sec == *time;
}

class Downloads {
 public:
  Downloads(std::vector<std::unique_ptr<Item>> items, const DownloadOptions& options)
      : items_(std::move(items)), options_(options) {}

  Result<void> run(const std::string& folder) {
    TRY(try_parallel(items_.size(), kConnections, [&](unsigned, std::size_t i) { return open(*items_[i]); }));
    TRY(check_room(folder));
    plan();
    auto fetched = try_parallel(parts_.size(), kConnections, [&](unsigned, std::size_t i) { return fetch(parts_[i]); });
    if (!fetched) keep_journals();
    if (!fetched || !options_.sync) return fetched;
    return sync_folders();
  }

  std::span<const std::unique_ptr<Item>> items() const { return items_; }
  std::uint64_t fetched_bytes() const { return fetched_; }

 private:
  struct Part {
    Item* item;
    std::uint64_t begin;
    std::uint64_t end;
  };

  // Finds the size and checksum of a file, and whether it is already complete.
  Result<void> open(Item& item) {
    if (auto found = find_cached(item); !found) return item.error_here(found.error());
    if (!item.cached) {
      if (auto asked = ask(item); !asked) return item.error_here(asked.error());
    }
    item.result = {.path = item.path, .size = item.size()};
    std::error_code missing;
    if (fs::file_size(item.path, missing) != item.size() || missing) return {};
    if (item.sum.kind.empty()) {
      item.result.already_complete = has_time(item.path, item.last_modified());
      return {};
    }
    const auto sum = remote::checksum_of(item.path, item.sum.kind);
    item.result.already_complete = sum && *sum == item.sum.hex;
    if (item.result.already_complete) item.result.checksum = item.sum.kind;
    return {};
  }

  // Asks the server. Small files come whole with the first response, and up to kMostKept bytes of them stay in memory.
  Result<void> ask(Item& item) {
    constexpr std::uint64_t kMostKept = std::uint64_t{32} << 20;
    auto address = TRY(address_of(item.wanted.uri));
    const bool is_large = item.wanted.listed.size > remote::kFrontBytes || kept_ > kMostKept;
    const std::uint64_t front = is_large ? 1 : remote::kFrontBytes;
    auto file = TRY(RemoteFile::open(std::move(address), front, options_.work.stop, front));
    item.remote = std::move(file);
    kept_ += item.remote->front().size();
    item.sum = remote::expected_checksum(item.wanted.listed, item.remote->first_response());
    if (item.sum.kind.empty() && uri_scheme(item.wanted.uri) == "s3") {
      const auto told = TRY(remote::request_s3_checksums(item.wanted.uri, options_.work.stop));
      if (told.is_success()) item.sum = remote::expected_checksum(item.wanted.listed, told);
    }
    if (!item.wanted.listed.etag.empty() && item.wanted.listed.size != item.size()) {
      return fail(Errc::kIo, "the server sends {} bytes, its file list says {}", item.size(), item.wanted.listed.size);
    }
    return {};
  }

  // Looks in the hub's cache, which is the only source if HF_HUB_OFFLINE is set.
  static Result<void> find_cached(Item& item) {
    if (uri_scheme(item.wanted.uri) != "hf") return {};
    const auto location = TRY(remote::parse_hub_location(item.wanted.uri));
    const auto path = remote::HubCache(location.repo).find(location.revision, location.file);
    const bool is_offline = remote::is_hub_offline();
    if (!path && is_offline) return remote::fail_not_cached();
    std::error_code error;
    if (!path || fs::equivalent(*path, item.path, error)) return {};
    item.sum = remote::expected_checksum(item.wanted.listed, {});
    const bool is_alone = is_offline || remote::is_hub_unreachable();
    const bool is_right =
        item.sum.kind.empty() ? is_alone : remote::checksum_of(*path, item.sum.kind).value_or("") == item.sum.hex;
    if (!is_right) return {};
    auto source = open_file(*path, Access::kPread);
    if (!source) return fail_at(escape(*path), source.error());
    item.cached = std::move(*source);
    return {};
  }

  // Checks the free space before downloading.
  Result<void> check_room(const std::string& folder) const {
    std::uint64_t needed = 0;
    for (const auto& item : items_) {
      struct stat draft{};
      const bool has_draft = ::stat(item->kept_path().c_str(), &draft) == 0;
      const std::uint64_t there = has_draft ? static_cast<std::uint64_t>(draft.st_blocks) * 512 : 0;
      if (item->result.already_complete) continue;
      const auto sum = checked_add(needed, item->size() - std::min(item->size(), there));
      if (!sum)
        return fail(Errc::kUnsupported, "{}: with {} bytes more, the total does not fit in 64 bits", shown(item->wanted.uri),
                    item->size());
      needed = *sum;
    }
    struct statvfs disk{};
    if (::statvfs(folder.c_str(), &disk) != 0)
      return fail_errno(Errc::kWrite, errno, "{}: cannot read the free disk space", escape(folder));
    if (const std::uint64_t room = disk.f_bavail * disk.f_frsize; needed > room) {
      return fail_errno(Errc::kWrite, ENOSPC, "{}: needs {} bytes, {} are free", escape(folder), needed, room);
    }
    return {};
  }

  void plan() {
    for (const auto& item : items_) {
      if (item->result.already_complete) continue;
      total_ += item->size();
      const std::uint64_t step = item->has_parts() ? kPartBytes : std::max<std::uint64_t>(item->size(), 1);
      std::uint64_t begin = 0;
      do {
        parts_.push_back({.item = item.get(), .begin = begin, .end = std::min(begin + step, item->size())});
        ++item->parts_left;
        begin += step;
      } while (begin < item->size());
    }
  }

  // Called at the first part of a file: resumes an earlier run of the same version.
  Result<void> begin(Item& item) const {
    const std::scoped_lock lock(item.mutex);
    if (item.file) return {};
    std::error_code error;
    if (const fs::path parent = fs::path(item.path).parent_path(); !parent.empty()) fs::create_directories(parent, error);
    auto file = TRY(OutputFile::create_partial(item.path, item.kept_path()));
    const std::string mark = item.mark();
    const std::string text = fmt::format("download 1\n{}\n{}\n{}\n", item.size(), mark, item.sum.hex);
    const auto left = TRY(file.size());
    if (mark.empty() || left != item.size()) ::unlink(item.journal_path().c_str());
    const auto key = TRY(sha256(*open_memory(std::as_bytes(std::span(text)))));
    item.file.emplace(std::move(file));
    auto journal = TRY(Journal::open(item.journal_path(), key, [&item] { return item.file->sync(); }));
    item.journal.emplace(std::move(journal));
    return item.file->reserve(item.size());
  }

  Result<void> fetch(const Part& part) {
    Item& item = *part.item;
    TRY(begin(item));
    std::uint64_t from = std::min(item.journal->done_until(0, part.begin), part.end);
    if (!item.has_parts() && from < part.end) from = part.begin;  // the server cannot send parts
    if (!advance(from - part.begin, item)) return fail(Errc::kCancelled, "cancelled");
    TRY(fetch_bytes({.item = &item, .begin = from, .end = part.end}));
    const std::scoped_lock lock(item.mutex);
    return --item.parts_left == 0 ? finish(item) : Result<void>();
  }

  Result<void> fetch_bytes(const Part& part) {
    Item& item = *part.item;
    if (item.cached) {
      auto copied = item.file->copy_from(*item.cached, part.begin, part.begin, part.end - part.begin);
      return copied ? note(item, part.begin, part.end) : item.error_here(copied.error());
    }
    if (const auto front = item.remote->front(); part.end <= front.size()) {
      fetched_ += part.end - part.begin;
      auto written = item.file->write_at(part.begin, front.subspan(part.begin, part.end - part.begin));
      return written ? note(item, part.begin, part.end) : written;
    }
    constexpr std::uint64_t kNoted = std::uint64_t{512} << 10;  // at most this much of each connection is lost on a kill
    std::uint64_t at = part.begin;
    std::uint64_t noted = part.begin;
    Result<void> written;
    auto fetched = item.remote->fetch(part.begin, part.end, [&](std::span<const std::byte> piece) {
      written = item.file->write_at(at, piece);
      at += piece.size();
      fetched_ += piece.size();
      if (written && (at - noted >= kNoted || at == part.end)) {
        written = note(item, noted, at);
        noted = at;
      }
      return written.has_value();
    });
    if (!written) return written;
    if (fetched) return {};
    if (at > noted) TRY(item.journal->add(0, noted, at));
    return item.error_here(fetched.error());
  }

  // Records bytes that were received.
  Result<void> note(Item& item, std::uint64_t begin, std::uint64_t end) {
    TRY(item.journal->add(0, begin, end));
    if (!advance(end - begin, item)) return fail(Errc::kCancelled, "cancelled");
    constexpr std::chrono::milliseconds kBetweenFlushes{500};
    const std::unique_lock lock(item.mutex, std::try_to_lock);
    const auto now = std::chrono::steady_clock::now();
    if (!lock || now - item.flushed < kBetweenFlushes) return {};
    item.flushed = now;
    return item.journal->flush();
  }

  // Saves the progress for the next run. Errors are ignored: the first one is already reported.
  void keep_journals() {
    for (const auto& item : items_) {
      if (!item->journal) continue;
      [[maybe_unused]] const auto flushed = item->journal->flush();
    }
  }

  // Checks the sum and gives the file its name.
  Result<void> finish(Item& item) const {
    if (!item.sum.kind.empty()) {
      const auto sum = remote::checksum_of(item.file->partial_path(), item.sum.kind);
      if (!sum) return fail_at(escape(item.kept_path()), sum.error());
      if (*sum != item.sum.hex) {
        item.journal.reset();
        ::unlink(item.journal_path().c_str());  // the next run starts again
        return item.error_here(Error{.code = Errc::kCorrupt,
                                     .message = fmt::format("the {} checksum of the download is {}, the server says {}",
                                                            item.sum.kind, *sum, item.sum.hex)});
      }
      item.result.checksum = item.sum.kind;
    }
    if (options_.sync) {
      TRY(item.file->sync());
    }
    item.journal.reset();
    ::unlink(item.journal_path().c_str());  // first, so that a new file never meets an old journal
    TRY(item.file->publish());
    set_time(item.path, item.last_modified());
    item.file.reset();
    return {};
  }

  Result<void> sync_folders() const {
    std::set<std::string> folders;
    for (const auto& item : items_) folders.insert(folder_of(item->path));
    for (const std::string& folder : folders) {
      TRY(sync_folder(folder));
    }
    return {};
  }

  bool advance(std::uint64_t bytes, const Item& item) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    return report(options_.work, done_, total_, item.wanted.listed.name);
  }

  std::vector<std::unique_ptr<Item>> items_;
  const DownloadOptions& options_;
  std::vector<Part> parts_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> kept_ = 0;  // bytes of first responses in memory
  std::atomic<std::uint64_t> fetched_ = 0;
};

std::unique_ptr<Item> make_item(WantedFile wanted, std::string path) {
  auto item = std::make_unique<Item>();
  item->wanted = std::move(wanted);
  item->path = std::move(path);
  return item;
}

// To the cache, where files lie under their sums, with links to them from the folders of commits.
class CacheDownload {
 public:
  CacheDownload(std::string revision, remote::HubLocation location)
      : revision_(std::move(revision)), location_(std::move(location)), cache_(location_.repo) {}

  Result<DownloadReport> run(std::vector<WantedFile> files, const DownloadOptions& options) {
    if (remote::is_hub_offline() || remote::is_hub_unreachable()) return describe_cached(files);
    const std::string blobs = cache_.blob("");
    std::error_code error;
    fs::create_directories(blobs, error);
    if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot create the directory", escape(blobs));
    std::vector<std::unique_ptr<Item>> items;
    for (WantedFile& file : files) {
      if (!remote::is_hex(file.listed.etag, 40) && !remote::is_hex(file.listed.etag, 64)) {
        return fail(Errc::kCorrupt, "{}: the hub sends no checksum", shown(file.uri));
      }
      links_.push_back({.name = remote::parse_hub_location(file.uri)->file, .etag = file.listed.etag});
      std::string path = cache_.blob(file.listed.etag);
      const auto has_path = [&](const auto& item) { return item->path == path; };  // two names of one content are one blob
      if (std::ranges::none_of(items, has_path)) items.push_back(make_item(std::move(file), std::move(path)));
    }
    Downloads downloads(std::move(items), options);
    TRY(downloads.run(blobs));
    return link(downloads);
  }

 private:
  struct Link {
    std::string name;  // in the model
    std::string etag;
  };

  DownloadReport describe_cached(std::span<const WantedFile> files) const {
    DownloadReport report{.folder = cache_.snapshot(location_.revision), .files = {}};
    for (const WantedFile& file : files) {
      report.files.push_back({.path = report.folder + "/" + remote::parse_hub_location(file.uri)->file,
                              .size = file.listed.size,
                              .already_complete = true,
                              .checksum = {}});
    }
    return report;
  }

  Result<DownloadReport> link(const Downloads& downloads) const {
    DownloadReport report{.folder = cache_.snapshot(location_.revision), .files = {}, .fetched_bytes = downloads.fetched_bytes()};
    for (const Link& link : links_) {
      TRY(cache_.link(location_.revision, link.name, link.etag));
      const auto item =
          std::ranges::find_if(downloads.items(), [&](const auto& i) { return i->wanted.listed.etag == link.etag; });
      report.files.push_back((*item)->result);
      report.files.back().path = report.folder + "/" + link.name;
    }
    TRY(cache_.set_revision(revision_, location_.revision));
    return report;
  }

  std::string revision_;          // as it was asked for
  remote::HubLocation location_;  // with a commit
  remote::HubCache cache_;
  std::vector<Link> links_;
};

// The names that files have after a download, and before they are complete.
std::vector<std::string> with_incomplete(std::vector<std::string> names) {
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i) {
    for (const char* const suffix : {kIncompleteSuffix, kIncompleteJournalSuffix}) names.push_back(names[i] + suffix);
  }
  return names;
}

}  // namespace

Result<DownloadReport> download(const std::string& uri, const std::string& folder, const DownloadOptions& options) {
  if (!is_uri(uri)) return fail(Errc::kInvalidArgument, "{}: not a URI; there is nothing to download", escape(uri));
  if (folder.empty() && uri_scheme(uri) != "hf") {
    return fail(Errc::kInvalidArgument, "{}: give an output directory; only hf:// models have a default", shown(uri));
  }
  const auto pinned = pin_path(uri, {.stop = options.work.stop});
  if (!pinned) return fail_at(shown(uri), pinned.error());
  auto wanted = list_wanted(*pinned, options);
  if (!wanted) return fail_at(shown(uri), wanted.error());
  if (folder.empty()) {
    const std::string revision = remote::parse_hub_location(uri)->revision;
    return CacheDownload(revision, *remote::parse_hub_location(*pinned)).run(std::move(wanted->files), options);
  }

  TRY(check_output_path(folder));
  if (!options.force) TRY(check_only(folder, with_incomplete(std::move(wanted->names))));
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot create the directory", escape(folder));
  std::vector<std::unique_ptr<Item>> items;
  for (WantedFile& file : wanted->files) {
    std::string path = (fs::path(folder) / file.listed.name).string();
    items.push_back(make_item(std::move(file), std::move(path)));
  }
  Downloads downloads(std::move(items), options);
  TRY(downloads.run(folder));
  DownloadReport report{.folder = folder, .files = {}, .fetched_bytes = downloads.fetched_bytes()};
  for (const auto& item : downloads.items()) report.files.push_back(item->result);
  return report;
}

}  // namespace ballast
