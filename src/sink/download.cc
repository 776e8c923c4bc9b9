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
#include <openssl/evp.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <ballast/glob.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "format/safetensors/index.h"
#include "quantize/parquet_metadata.h"
#include "sink/journal.h"
#include "sink/output_file.h"
#include "source/place.h"
#include "source/remote/hub.h"
#include "source/remote/remote_file.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using remote::RemoteFile;

constexpr unsigned kConnections = 8;
constexpr std::uint64_t kPartBytes = std::uint64_t{4} << 20;

// What a server says a file's sum is.
struct ExpectedSum {
  std::string kind;  // sha256, git, or empty
  std::string hex;
};

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string hex_of_base64(std::string_view text) {
  std::vector<unsigned char> bytes(text.size());
  if (text.size() != 44 || EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), 44) < 32) return {};
  std::string hex;
  for (std::size_t i = 0; i < 32; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

ExpectedSum expected_sum(const ListedFile& listed, const remote::Answer& answer) {
  if (is_hex(listed.sha256, 64)) return {.kind = "sha256", .hex = listed.sha256};
  for (const char* const header : {"x-linked-etag", "etag"}) {
    std::string_view etag = answer.find(header).value_or("");
    if (etag.starts_with('"') && etag.ends_with('"') && etag.size() > 1) etag = etag.substr(1, etag.size() - 2);
    if (is_hex(etag, 64)) return {.kind = "sha256", .hex = std::string(etag)};
  }
  for (const auto& [header, before] :
       {std::pair{"repr-digest", "sha-256=:"}, std::pair{"digest", "sha-256="}, std::pair{"x-amz-checksum-sha256", ""}}) {
    const std::string_view text = answer.find(header).value_or("");
    const std::size_t at = text.find(before);
    if (at == std::string_view::npos) continue;
    const std::string_view sum = text.substr(at + std::string_view(before).size(), 44);
    if (std::string hex = hex_of_base64(sum); !hex.empty()) return {.kind = "sha256", .hex = std::move(hex)};
  }
  if (is_hex(listed.etag, 40)) return {.kind = "git", .hex = listed.etag};
  return {};
}

// As git names a file's content.
Result<std::string> git_sum(const Source& source) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string head = fmt::format("blob {}", source.size());
  EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr);
  EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);
  std::vector<std::byte> block(kPartBytes);
  for (std::uint64_t at = 0; at < source.size(); at += block.size()) {
    const std::span part(block.data(), std::min<std::uint64_t>(block.size(), source.size() - at));
    if (auto read = source.read_at(at, part); !read) return std::unexpected(read.error());
    EVP_DigestUpdate(context.get(), part.data(), part.size());
  }
  std::array<unsigned char, 20> digest{};
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

Result<std::string> sum_of(const std::string& path, const std::string& kind) {
  const auto source = open_file(path, Access::kPread);
  if (!source) return std::unexpected(source.error());
  return kind == "git" ? git_sum(**source) : sha256(**source);
}

// Where a server's file goes, and what is known of it.
struct Item {
  ListedFile listed;
  std::string uri;
  std::string path;
  std::unique_ptr<RemoteFile> remote;
  ExpectedSum sum;
  DownloadedFile result;

  // While it is being written:
  std::mutex mutex;
  std::optional<OutputFile> file;
  std::optional<Journal> journal;
  std::chrono::steady_clock::time_point flushed;
  std::size_t parts_left = 0;

  std::uint64_t size() const { return remote->version().size; }
  std::string kept_path() const { return path + ".ballast-incomplete"; }
  std::string journal_path() const { return kept_path() + ".journal"; }
  std::unexpected<Error> error_here(const Error& error) const { return fail_at(shown(uri), error); }
};

// Sets the time that the server gave, by which the file is known again.
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
    if (auto opened = try_parallel(items_.size(), kConnections, [&](unsigned, std::size_t i) { return open(*items_[i]); });
        !opened)
      return opened;
    if (auto checked = check_room(folder); !checked) return checked;
    plan();
    if (auto fetched = try_parallel(parts_.size(), kConnections, [&](unsigned, std::size_t i) { return fetch(parts_[i]); });
        !fetched)
      return fetched;
    return options_.sync ? sync_folders() : Result<void>();
  }

  std::vector<DownloadedFile> results() const {
    std::vector<DownloadedFile> all;
    for (const auto& item : items_) all.push_back(item->result);
    return all;
  }
  std::uint64_t fetched_bytes() const { return fetched_; }

 private:
  struct Part {
    Item* item;
    std::uint64_t begin;
    std::uint64_t end;
  };

  // Asks the server, and looks whether the file is there already.
  Result<void> open(Item& item) const {
    auto address = address_of(item.uri);
    if (!address) return item.error_here(address.error());
    auto file = RemoteFile::open(std::move(*address), remote::kFrontBytes, options_.interrupted);
    if (!file) return item.error_here(file.error());
    item.remote = std::move(*file);
    item.sum = expected_sum(item.listed, item.remote->first_answer());
    item.result = {.path = item.path, .size = item.size()};
    if (!item.listed.etag.empty() && item.listed.size != item.size()) {
      return item.error_here(
          {.code = Errc::kIo,
           .message = fmt::format("the server sends {} bytes, its list says {}", item.size(), item.listed.size)});
    }
    std::error_code missing;
    if (fs::file_size(item.path, missing) != item.size() || missing) return {};
    if (item.sum.kind.empty()) {
      item.result.was_there = has_time(item.path, item.remote->version().last_modified);
      return {};
    }
    const auto sum = sum_of(item.path, item.sum.kind);
    item.result.was_there = sum && *sum == item.sum.hex;
    if (item.result.was_there) item.result.checked = item.sum.kind;
    return {};
  }

  // Before anything is fetched.
  Result<void> check_room(const std::string& folder) const {
    std::uint64_t needed = 0;
    for (const auto& item : items_) {
      struct stat draft{};
      const bool has_draft = ::stat(item->kept_path().c_str(), &draft) == 0;
      const std::uint64_t there = has_draft ? static_cast<std::uint64_t>(draft.st_blocks) * 512 : 0;
      if (!item->result.was_there) needed += item->size() - std::min(item->size(), there);
    }
    struct statvfs disk{};
    if (::statvfs(folder.c_str(), &disk) != 0)
      return fail_errno(Errc::kWrite, errno, "{}: cannot tell the room left", escape(folder));
    if (const std::uint64_t room = disk.f_bavail * disk.f_frsize; needed > room) {
      return fail_errno(Errc::kWrite, ENOSPC, "{}: {} bytes are needed, {} are free", escape(folder), needed, room);
    }
    return {};
  }

  void plan() {
    for (const auto& item : items_) {
      if (item->result.was_there) continue;
      total_ += item->size();
      const std::uint64_t step = item->remote->gives_parts() ? kPartBytes : std::max<std::uint64_t>(item->size(), 1);
      std::uint64_t begin = 0;
      do {
        parts_.push_back({.item = item.get(), .begin = begin, .end = std::min(begin + step, item->size())});
        ++item->parts_left;
        begin += step;
      } while (begin < item->size());
    }
  }

  // At the first part of a file: goes on with what a run before this one left, if that is of the same file.
  Result<void> begin(Item& item) const {
    const std::scoped_lock lock(item.mutex);
    if (item.file) return {};
    std::error_code error;
    if (const fs::path parent = fs::path(item.path).parent_path(); !parent.empty()) fs::create_directories(parent, error);
    auto file = OutputFile::create_kept(item.path, item.kept_path());
    if (!file) return std::unexpected(file.error());
    const remote::Version& version = item.remote->version();
    const std::string mark = version.etag.empty() ? version.last_modified : version.etag;
    const std::string text = fmt::format("download 1\n{}\n{}\n{}\n", version.size, mark, item.sum.hex);
    const auto left = file->size();
    if (!left) return std::unexpected(left.error());
    const bool is_known = !mark.empty() || !item.sum.hex.empty();  // else nobody can tell whether it is still the same
    if (!is_known || *left != version.size) ::unlink(item.journal_path().c_str());
    const auto key = sha256(*open_memory(std::as_bytes(std::span(text))));
    if (!key) return std::unexpected(key.error());
    item.file.emplace(std::move(*file));
    auto journal = Journal::open(item.journal_path(), *key, [&item] { return item.file->sync(); });
    if (!journal) return std::unexpected(journal.error());
    item.journal.emplace(std::move(*journal));
    return item.file->reserve(version.size);
  }

  Result<void> fetch(const Part& part) {
    Item& item = *part.item;
    if (auto begun = begin(item); !begun) return begun;
    if (item.journal->has(0, part.begin, part.end)) {
      if (!advance(part.end - part.begin, item)) return fail(Errc::kCancelled, "cancelled");
    } else {
      if (auto fetched = fetch_bytes(part); !fetched) return fetched;
      if (auto added = item.journal->add(0, part.begin, part.end); !added) return added;
    }
    const std::scoped_lock lock(item.mutex);
    if (--item.parts_left == 0) return finish(item);
    constexpr std::chrono::milliseconds kBetweenFlushes{500};
    if (const auto now = std::chrono::steady_clock::now(); now - item.flushed > kBetweenFlushes) {
      item.flushed = now;
      return item.journal->flush();
    }
    return {};
  }

  Result<void> fetch_bytes(const Part& part) {
    Item& item = *part.item;
    const auto front = item.remote->front();
    if (part.end <= front.size()) {
      if (auto written = item.file->write_at(part.begin, front.subspan(part.begin, part.end - part.begin)); !written)
        return written;
      return advance(part.end - part.begin, item) ? Result<void>() : fail(Errc::kCancelled, "cancelled");
    }
    std::uint64_t at = part.begin;
    Result<void> written;
    auto fetched = item.remote->fetch(part.begin, part.end, [&](std::span<const std::byte> piece) {
      written = item.file->write_at(at, piece);
      at += piece.size();
      fetched_ += piece.size();
      return written && advance(piece.size(), item);
    });
    if (!written) return written;
    if (!fetched) return item.error_here(fetched.error());
    return {};
  }

  // Checks the sum and gives the file its name.
  Result<void> finish(Item& item) const {
    if (!item.sum.kind.empty()) {
      const auto sum = sum_of(item.file->kept_path(), item.sum.kind);
      if (!sum) return fail_at(escape(item.kept_path()), sum.error());
      if (*sum != item.sum.hex) {
        fs::remove(item.journal_path());  // begins anew next time
        return item.error_here(
            {.code = Errc::kCorrupt,
             .message = fmt::format("what was sent has the {} sum {}, the server says {}", item.sum.kind, *sum, item.sum.hex)});
      }
      item.result.checked = item.sum.kind;
    }
    if (options_.sync) {
      if (auto synced = item.file->sync(); !synced) return synced;
    }
    item.journal.reset();
    ::unlink(item.journal_path().c_str());  // first: it must not be taken for one of the next file
    if (auto published = item.file->publish(); !published) return published;
    set_time(item.path, item.remote->version().last_modified);
    item.file.reset();
    return {};
  }

  Result<void> sync_folders() const {
    std::set<std::string> folders;
    for (const auto& item : items_) folders.insert(folder_of(item->path));
    for (const std::string& folder : folders) {
      if (auto synced = sync_folder(folder); !synced) return synced;
    }
    return {};
  }

  bool advance(std::uint64_t bytes, const Item& item) {
    const std::scoped_lock lock(mutex_);
    done_ += bytes;
    return !options_.progress || options_.progress(done_, total_, item.listed.name);
  }

  std::vector<std::unique_ptr<Item>> items_;
  const DownloadOptions& options_;
  std::vector<Part> parts_;
  std::mutex mutex_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> fetched_ = 0;
};

bool is_wanted(const std::string& name, const DownloadOptions& options) {
  const auto matches = [&](const std::string& glob) { return glob_match(glob, name); };
  return (options.include.empty() || std::ranges::any_of(options.include, matches)) &&
         std::ranges::none_of(options.exclude, matches);
}

// Names come from servers, and must not lead out of the folder.
bool is_safe(std::string_view name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && std::ranges::find(path, fs::path("..")) == path.end() &&
         name.find('\0') == std::string_view::npos;
}

// HTTP has no lists, but a model's own files tell of others: the index of its shards, what was said of parts in Parquet.
Result<void> add_told(const std::string& uri, const DownloadOptions& options, std::vector<ListedFile>& files) {
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(files, name, &ListedFile::name) == files.end()) files.push_back({.name = name});
  };
  std::vector<std::string> names;
  for (const ListedFile& file : files) names.push_back(file.name);
  for (const std::string& name : names) {
    const bool is_index = name.ends_with(".safetensors.index.json");
    if (!is_index && name != kParquetMetadataFile) continue;
    const auto text = read_text(join_path(uri, name), {.interrupted = options.interrupted});
    if (!text) return std::unexpected(Error(text.error()).at(escape(name)));
    if (const auto index = is_index ? safetensors::parse_index(*text) : std::unexpected(Error{})) {
      for (const auto& entry : index->entries) add(entry.shard);
    }
    if (const auto metadata = is_index ? std::unexpected(Error{}) : parse_parquet_metadata(*text)) {
      for (const ParquetMetadata::Part& part : metadata->parts) add(part.file);
    }
  }
  return {};
}

// A file of the hub is looked up in the list, too, which has its sum.
Result<std::vector<ListedFile>> list_wanted(const std::string& uri, const DownloadOptions& options) {
  if (is_folder(uri)) {
    auto files = list_tree(uri, {.interrupted = options.interrupted});
    if (!files) return files;
    if (uri_scheme(uri).starts_with("http")) {
      if (auto added = add_told(uri, options, *files); !added) return std::unexpected(added.error());
    }
    std::erase_if(*files, [&](const ListedFile& file) { return !is_wanted(file.name, options); });
    if (files->empty()) return fail(Errc::kNotFound, "has no files{}", options.include.empty() ? "" : " that match");
    return files;
  }
  ListedFile file{.name = file_name(uri)};
  if (uri_scheme(uri) == "hf") {
    const auto beside = list_folder(parent_path(uri), {.interrupted = options.interrupted});
    if (!beside) return beside;
    const auto found = std::ranges::find(*beside, file.name, &ListedFile::name);
    if (found == beside->end()) return fail(Errc::kNotFound, "the model has no such file");
    file = *found;
  }
  return std::vector{std::move(file)};
}

std::unique_ptr<Item> make_item(ListedFile file, std::string uri, std::string path) {
  auto item = std::make_unique<Item>();
  item->listed = std::move(file);
  item->uri = std::move(uri);
  item->path = std::move(path);
  return item;
}

// To the cache, where files lie under their sums, with links to them from the folders of commits.
Result<DownloadReport> download_to_cache(const std::string& uri, const std::string& pinned, const DownloadOptions& options) {
  const auto asked = remote::parse_hub_place(uri);
  const auto place = remote::parse_hub_place(pinned);
  if (!asked || !place) return fail_at(shown(uri), asked ? place.error() : asked.error());
  const remote::HubCache cache(place->repo);
  auto files = list_wanted(pinned, options);
  if (!files) return fail_at(shown(uri), files.error());

  const std::string blobs = cache.blob("");
  std::error_code error;
  fs::create_directories(blobs, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot be made", escape(blobs));
  const bool is_one = !is_folder(pinned);
  std::vector<std::unique_ptr<Item>> items;
  std::vector<std::string> names;  // in the model
  for (ListedFile& file : *files) {
    if (!is_hex(file.etag, 40) && !is_hex(file.etag, 64)) {
      return fail(Errc::kCorrupt, "{}: the hub tells no sum of {}", shown(uri), quote(file.name));
    }
    const std::string file_uri = is_one ? pinned : join_path(pinned, file.name);
    names.push_back(remote::parse_hub_place(file_uri)->file);
    std::string path = cache.blob(file.etag);
    // Two names of one content are one blob.
    const bool is_double = std::ranges::any_of(items, [&](const auto& item) { return item->path == path; });
    if (is_double) {
      if (auto linked = cache.link(place->revision, names.back(), file.etag); !linked) return std::unexpected(linked.error());
      names.pop_back();
    } else {
      items.push_back(make_item(std::move(file), file_uri, std::move(path)));
    }
  }
  std::vector<std::string> etags;
  for (const auto& item : items) etags.push_back(item->listed.etag);
  Downloads downloads(std::move(items), options);
  if (auto done = downloads.run(blobs); !done) return std::unexpected(done.error());
  DownloadReport report{
      .folder = cache.snapshot(place->revision), .files = downloads.results(), .fetched_bytes = downloads.fetched_bytes()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (auto linked = cache.link(place->revision, names[i], etags[i]); !linked) return std::unexpected(linked.error());
    report.files[i].path = report.folder + "/" + names[i];
  }
  if (auto set = cache.set_revision(asked->revision, place->revision); !set) return std::unexpected(set.error());
  return report;
}

}  // namespace

Result<DownloadReport> download(const std::string& uri, const std::string& folder, const DownloadOptions& options) {
  if (!is_uri(uri)) return fail(Errc::kInvalidArgument, "{}: is no URI: nothing is to be downloaded", escape(uri));
  if (folder.empty() && uri_scheme(uri) != "hf") {
    return fail(Errc::kInvalidArgument, "{}: name a folder for it: only models of the hub have a place of their own", shown(uri));
  }
  const auto pinned = pin_path(uri, {.interrupted = options.interrupted});
  if (!pinned) return fail_at(shown(uri), pinned.error());
  if (folder.empty()) return download_to_cache(uri, *pinned, options);
  auto files = list_wanted(*pinned, options);
  if (!files) return fail_at(shown(uri), files.error());

  if (auto checked = check_output_path(folder); !checked) return std::unexpected(checked.error());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot be made", escape(folder));
  std::vector<std::unique_ptr<Item>> items;
  for (ListedFile& file : *files) {
    if (!is_safe(file.name)) return fail(Errc::kCorrupt, "{}: the server names a file {}", shown(uri), quote(file.name));
    std::string file_uri = is_folder(*pinned) ? join_path(*pinned, file.name) : *pinned;
    std::string path = (fs::path(folder) / file.name).string();
    items.push_back(make_item(std::move(file), std::move(file_uri), std::move(path)));
  }
  Downloads downloads(std::move(items), options);
  if (auto done = downloads.run(folder); !done) return std::unexpected(done.error());
  return DownloadReport{.folder = folder, .files = downloads.results(), .fetched_bytes = downloads.fetched_bytes()};
}

}  // namespace ballast
