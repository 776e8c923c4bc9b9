#include "source/remote/hub.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "source/remote/environment.h"
#include "source/remote/retry.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestPage = 32 << 20;
constexpr std::string_view kScheme = "hf://";
constexpr const char* kTokenHint = "if the model is private or gated, set HF_TOKEN to a token with read access";

std::string endpoint() {
  std::string given = environment({"HF_ENDPOINT"});
  while (given.ends_with('/')) given.pop_back();
  return given.empty() ? "https://huggingface.co" : given;
}

std::string home_folder() {
  if (std::string home = environment({"HF_HOME"}); !home.empty()) return home;
  if (const std::string cache = environment({"XDG_CACHE_HOME"}); !cache.empty()) return cache + "/huggingface";
  return environment({"HOME"}) + "/.cache/huggingface";
}

std::string cache_folder() {
  const std::string named = environment({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  return named.empty() ? home_folder() + "/hub" : named;
}

std::string token() {
  std::string found = environment({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (found.empty()) {
    const std::string path = environment({"HF_TOKEN_PATH"});
    found = read_text_file(path.empty() ? home_folder() + "/token" : path).value_or("");
  }
  return std::string(trimmed(found));
}

std::vector<std::string> sign() {
  const std::string secret = token();
  if (secret.empty()) return {};
  return {fmt::format("Authorization: Bearer {}", secret)};
}

bool is_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  });
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Whether a relative path stays inside its folder.
bool is_inner(std::string_view path) {
  const fs::path given(path);
  return !path.empty() && given.is_relative() && std::ranges::find(given, fs::path("..")) == given.end();
}

// Makes fewer attempts if the cache can be used instead.
Result<std::string> get_json(const std::string& url, bool has_cached, const StopToken& stop, Response* response) {
  *response = {};
  auto text = get_text([&] { return Request{.url = url, .secret_headers = sign()}; }, kLargestPage, stop, response,
                       has_cached ? 2 : Retry::kAttempts);
  if (!text && response->status != 0) return std::unexpected(response_error(*response, kTokenHint));
  return text;
}

// <https://…>; rel="next"
std::string next_page(const Response& response) {
  const auto link = response.find("link");
  if (!link || link->find("rel=\"next\"") == std::string_view::npos) return {};
  const std::size_t begin = link->find('<');
  const std::size_t end = link->find('>');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::string(link->substr(begin + 1, end - begin - 1));
}

// Set if the last request got no response, so that the next one does not wait again.
std::atomic<bool>& unreachable() {
  static std::atomic<bool> value = false;
  return value;
}

bool is_no_response(const Result<std::string>& text, const Response& response) {
  return !text && response.status == 0 && text.error().code != Errc::kCancelled;
}

}  // namespace

Result<std::vector<ListedFile>> parse_hub_page(const std::string& text, std::string_view prefix) {
  simdjson::dom::parser parser;
  const auto document = TRY(parse_json(parser, text));
  simdjson::dom::array entries;
  if (document.get(entries) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "the file list is not a JSON array");
  std::vector<ListedFile> files;
  for (const simdjson::dom::element entry : entries) {
    std::string_view kind;
    std::string_view path;
    if (entry["type"].get(kind) != simdjson::SUCCESS || entry["path"].get(path) != simdjson::SUCCESS || !is_inner(path)) {
      return fail(Errc::kCorrupt, "the file list has an invalid entry: {}", describe(entry));
    }
    if (kind != "file" || !path.starts_with(prefix)) continue;
    ListedFile file{.name = std::string(path.substr(prefix.size()))};
    std::string_view name;
    simdjson::dom::element size;
    if (entry["lfs"]["oid"].get(name) == simdjson::SUCCESS) {
      file.sha256 = name;
      file.etag = name;
    } else if (entry["oid"].get(name) == simdjson::SUCCESS) {
      file.etag = name;
    }
    const bool has_size = entry["lfs"]["size"].get(size) == simdjson::SUCCESS || entry["size"].get(size) == simdjson::SUCCESS;
    const auto bytes = has_size ? whole_number(size) : std::nullopt;
    if (!bytes || *bytes < 0) return fail(Errc::kCorrupt, "the file list has no size for {}", quote(path));
    file.size = static_cast<std::uint64_t>(*bytes);
    files.push_back(std::move(file));
  }
  return files;
}

std::string HubLocation::uri() const {
  return fmt::format("{}{}@{}{}{}", kScheme, repo, percent_encode(revision), file.empty() ? "" : "/", file);
}
bool HubLocation::is_pinned() const { return is_commit(revision); }

Result<HubLocation> parse_hub_location(const std::string& uri) {
  constexpr const char* kForm = "not a valid model URI; expected hf://org/repo[@revision][/file]";
  std::string_view rest = std::string_view(uri).substr(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t org = rest.find('/');
  if (org == std::string_view::npos) return fail(Errc::kInvalidArgument, "{}", kForm);
  const std::size_t end = std::min(rest.find_first_of("/@", org + 1), rest.size());
  HubLocation location{.repo = std::string(rest.substr(0, end)), .revision = "main"};
  if (!is_name(rest.substr(0, org)) || !is_name(rest.substr(org + 1, end - org - 1))) {
    return fail(Errc::kInvalidArgument, "{}", kForm);
  }
  rest.remove_prefix(end);
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    std::size_t stop = std::min(rest.find('/'), rest.size());
    if (rest.starts_with("refs/")) {  // refs/pr/1 and refs/convert/parquet contain slashes
      for (int i = 0; i < 2 && stop < rest.size(); ++i) stop = std::min(rest.find('/', stop + 1), rest.size());
    }
    location.revision = percent_decode(rest.substr(0, stop));
    rest.remove_prefix(stop);
  }
  if (rest.starts_with('/')) rest.remove_prefix(1);
  location.file = rest;
  if (!is_inner(location.revision) || (!location.file.empty() && !is_inner(location.file)))
    return fail(Errc::kInvalidArgument, "{}", kForm);
  return location;
}

bool is_hub_offline() { return is_enabled({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}); }

std::unexpected<Error> fail_not_cached() {
  return fail(
      Errc::kNotFound,
      "not in the local Hugging Face cache, and offline mode is on (HF_HUB_OFFLINE); turn it off or download the model first");
}

bool is_hub_unreachable() { return unreachable(); }

Result<HubLocation> pin(HubLocation location, const StopToken& stop) {
  if (location.is_pinned()) return location;
  const auto cached = HubCache(location.repo).commit_of(location.revision);
  if (is_hub_offline() && !cached) {
    return fail(Errc::kNotFound,
                "revision {} is not in the local Hugging Face cache, and offline mode is on (HF_HUB_OFFLINE); turn it off or "
                "download the model first",
                quote(location.revision));
  }
  if (is_hub_offline()) {
    location.revision = *cached;
    return location;
  }
  Response response;
  const auto text =
      get_json(fmt::format("{}/api/models/{}/revision/{}", endpoint(), location.repo, percent_encode(location.revision)),
               cached.has_value(), stop, &response);
  unreachable() = is_no_response(text, response) && cached;
  if (unreachable()) {
    location.revision = *cached;
    return location;
  }
  if (!text) return std::unexpected(text.error());
  simdjson::dom::parser parser;
  const auto document = parse_json(parser, *text);
  std::string_view commit;
  if (!document || (*document)["sha"].get(commit) != simdjson::SUCCESS || !is_commit(commit)) {
    return fail(Errc::kCorrupt, "the Hugging Face Hub sent no commit for revision {}", quote(location.revision));
  }
  location.revision = commit;
  return location;
}

Address hub_address(const HubLocation& location) {
  return {.url = fmt::format("{}/{}/resolve/{}/{}", endpoint(), location.repo, percent_encode(location.revision),
                             percent_encode(location.file, "/")),
          .sign = sign,
          .hint = kTokenHint};
}

Result<std::vector<ListedFile>> list_hub(const HubLocation& folder, const StopToken& stop) {
  const std::string prefix = folder.file.empty() ? "" : folder.file + "/";
  std::vector<ListedFile> cached;
  for (ListedFile file : HubCache(folder.repo).list(folder.revision)) {
    if (!file.name.starts_with(prefix)) continue;
    file.name.erase(0, prefix.size());
    cached.push_back(std::move(file));
  }
  if (is_hub_offline() || is_hub_unreachable()) return cached;
  Listing listing;
  std::string url =
      fmt::format("{}/api/models/{}/tree/{}{}{}?recursive=true", endpoint(), folder.repo, percent_encode(folder.revision),
                  folder.file.empty() ? "" : "/", percent_encode(folder.file, "/"));
  while (!url.empty()) {
    Response response;
    const auto text = get_json(url, !cached.empty(), stop, &response);
    if (is_no_response(text, response) && !cached.empty()) {
      unreachable() = true;
      return cached;
    }
    if (!text) return std::unexpected(text.error());
    auto page = TRY(parse_hub_page(*text, prefix));
    TRY(listing.add_page(std::move(page)));
    const std::string next = next_page(response);
    if (next == url || (!next.empty() && uri_origin(resolve_reference(url, next)) != uri_origin(url))) {
      return fail(Errc::kCorrupt, "the file list has an invalid link to its next page: {}", quote(next));
    }
    url = next.empty() ? "" : resolve_reference(url, next);
  }
  return std::move(listing).files();
}

HubCache::HubCache(const std::string& repo) {
  std::string name = "models--" + repo;
  if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  folder_ = cache_folder() + "/" + name;
}

std::string HubCache::snapshot(const std::string& commit) const { return folder_ + "/snapshots/" + commit; }
std::string HubCache::blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }

std::optional<std::string> HubCache::find(const std::string& commit, const std::string& file) const {
  std::string path = snapshot(commit) + "/" + file;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  return path;
}

std::vector<ListedFile> HubCache::list(const std::string& commit) const {
  std::vector<ListedFile> files;
  const fs::path folder = snapshot(commit);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (!entry->is_regular_file(ignored)) continue;
    files.push_back({.name = entry->path().lexically_relative(folder).string(), .size = entry->file_size(ignored)});
  }
  std::ranges::sort(files, {}, &ListedFile::name);
  return files;
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const auto text = read_text_file(folder_ + "/refs/" + revision);
  const std::string_view commit = text ? trimmed(*text) : "";
  return is_commit(commit) ? std::optional<std::string>(commit) : std::nullopt;
}

Result<void> HubCache::link(const std::string& commit, const std::string& file, const std::string& etag) const {
  const fs::path path = fs::path(snapshot(commit)) / file;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path target = fs::path(blob(etag)).lexically_relative(path.parent_path());
  if (fs::read_symlink(path, error) == target) return {};
  fs::remove(path, error);
  fs::create_symlink(target, path, error);
  if (error) return fail(Errc::kWrite, "{}: cannot create the symbolic link: {}", escape(path.string()), error.message());
  return {};
}

Result<void> HubCache::set_revision(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision)) return {};
  const fs::path path = fs::path(folder_) / "refs" / revision;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path draft = path.string() + ".incomplete";
  std::ofstream file(draft, std::ios::binary);
  file << commit;
  file.close();
  if (file) fs::rename(draft, path, error);
  if (!file || error) return fail(Errc::kWrite, "{}: cannot write", escape(path.string()));
  return {};
}

}  // namespace ballast::remote
