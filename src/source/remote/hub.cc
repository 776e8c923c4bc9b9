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
#include "source/remote/patience.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestPage = 32 << 20;
constexpr std::string_view kScheme = "hf://";
constexpr const char* kTokenHint = "if the model is private or gated, set HF_TOKEN to a token that may read it";

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

// Below a folder, whatever is done with it.
bool is_inner(std::string_view path) {
  const fs::path given(path);
  return !path.empty() && given.is_relative() && std::ranges::find(given, fs::path("..")) == given.end();
}

// Where the cache has an answer, too, the hub is not waited for that long.
Result<std::string> ask(const std::string& url, bool has_cached, const StopToken& stop, Answer* answer) {
  *answer = {};
  auto text = get_text([&] { return Request{.url = url, .secret_headers = sign()}; }, kLargestPage, stop, answer,
                       has_cached ? 2 : Patience::kTries);
  if (!text && answer->status != 0) return std::unexpected(refusal(*answer, kTokenHint));
  return text;
}

// <https://…>; rel="next"
std::string next_page(const Answer& answer) {
  const auto link = answer.find("link");
  if (!link || link->find("rel=\"next\"") == std::string_view::npos) return {};
  const std::size_t begin = link->find('<');
  const std::size_t end = link->find('>');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return {};
  return std::string(link->substr(begin + 1, end - begin - 1));
}

// Whether the hub, when last asked, did not answer: it is not waited for twice in a row.
std::atomic<bool>& is_silent() {
  static std::atomic<bool> silent = false;
  return silent;
}

bool is_no_answer(const Result<std::string>& text, const Answer& answer) {
  return !text && answer.status == 0 && text.error().code != Errc::kCancelled;
}

}  // namespace

Result<std::vector<ListedFile>> parse_hub_page(const std::string& text, std::string_view prefix) {
  simdjson::dom::parser parser;
  const auto document = TRY(parse_json(parser, text));
  simdjson::dom::array entries;
  if (document.get(entries) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "the list of files is no array");
  std::vector<ListedFile> files;
  for (const simdjson::dom::element entry : entries) {
    std::string_view kind;
    std::string_view path;
    if (entry["type"].get(kind) != simdjson::SUCCESS || entry["path"].get(path) != simdjson::SUCCESS || !is_inner(path)) {
      return fail(Errc::kCorrupt, "the list of files has {}", describe(entry));
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
    if (!bytes || *bytes < 0) return fail(Errc::kCorrupt, "the list of files has no size of {}", quote(path));
    file.size = static_cast<std::uint64_t>(*bytes);
    files.push_back(std::move(file));
  }
  return files;
}

std::string HubPlace::uri() const {
  return fmt::format("{}{}@{}{}{}", kScheme, repo, percent_encode(revision), file.empty() ? "" : "/", file);
}
bool HubPlace::is_pinned() const { return is_commit(revision); }

Result<HubPlace> parse_hub_place(const std::string& uri) {
  constexpr const char* kForm = "is not of the form hf://org/repo[@revision][/file]";
  std::string_view rest = std::string_view(uri).substr(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t org = rest.find('/');
  if (org == std::string_view::npos) return fail(Errc::kInvalidArgument, "{}", kForm);
  const std::size_t end = std::min(rest.find_first_of("/@", org + 1), rest.size());
  HubPlace place{.repo = std::string(rest.substr(0, end)), .revision = "main"};
  if (!is_name(rest.substr(0, org)) || !is_name(rest.substr(org + 1, end - org - 1))) {
    return fail(Errc::kInvalidArgument, "{}", kForm);
  }
  rest.remove_prefix(end);
  if (rest.starts_with('@')) {
    rest.remove_prefix(1);
    std::size_t stop = std::min(rest.find('/'), rest.size());
    if (rest.starts_with("refs/")) {  // refs/pr/1 and refs/convert/parquet have slashes of their own
      for (int i = 0; i < 2 && stop < rest.size(); ++i) stop = std::min(rest.find('/', stop + 1), rest.size());
    }
    place.revision = percent_decode(rest.substr(0, stop));
    rest.remove_prefix(stop);
  }
  if (rest.starts_with('/')) rest.remove_prefix(1);
  place.file = rest;
  if (!is_inner(place.revision) || (!place.file.empty() && !is_inner(place.file)))
    return fail(Errc::kInvalidArgument, "{}", kForm);
  return place;
}

bool is_hub_offline() { return is_switched_on({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}); }

bool is_hub_silent() { return is_silent(); }

Result<HubPlace> pin(HubPlace place, const StopToken& stop) {
  if (place.is_pinned()) return place;
  const auto cached = HubCache(place.repo).commit_of(place.revision);
  if (is_hub_offline() && !cached) {
    return fail(Errc::kNotFound, "the network is not to be used (HF_HUB_OFFLINE), and the cache has no revision {}",
                quote(place.revision));
  }
  if (is_hub_offline()) {
    place.revision = *cached;
    return place;
  }
  Answer answer;
  const auto text = ask(fmt::format("{}/api/models/{}/revision/{}", endpoint(), place.repo, percent_encode(place.revision)),
                        cached.has_value(), stop, &answer);
  is_silent() = is_no_answer(text, answer) && cached;
  if (is_silent()) {
    place.revision = *cached;
    return place;
  }
  if (!text) return std::unexpected(text.error());
  simdjson::dom::parser parser;
  const auto document = parse_json(parser, *text);
  std::string_view commit;
  if (!document || (*document)["sha"].get(commit) != simdjson::SUCCESS || !is_commit(commit)) {
    return fail(Errc::kCorrupt, "the hub does not say which commit {} is", quote(place.revision));
  }
  place.revision = commit;
  return place;
}

Address hub_address(const HubPlace& place) {
  return {.url = fmt::format("{}/{}/resolve/{}/{}", endpoint(), place.repo, percent_encode(place.revision),
                             percent_encode(place.file, "/")),
          .sign = sign,
          .hint = kTokenHint};
}

Result<std::vector<ListedFile>> list_hub(const HubPlace& folder, const StopToken& stop) {
  const std::string prefix = folder.file.empty() ? "" : folder.file + "/";
  std::vector<ListedFile> cached;
  for (ListedFile file : HubCache(folder.repo).list(folder.revision)) {
    if (!file.name.starts_with(prefix)) continue;
    file.name.erase(0, prefix.size());
    cached.push_back(std::move(file));
  }
  if (is_hub_offline() || is_hub_silent()) return cached;
  Listing listing;
  std::string url =
      fmt::format("{}/api/models/{}/tree/{}{}{}?recursive=true", endpoint(), folder.repo, percent_encode(folder.revision),
                  folder.file.empty() ? "" : "/", percent_encode(folder.file, "/"));
  while (!url.empty()) {
    Answer answer;
    const auto text = ask(url, !cached.empty(), stop, &answer);
    if (is_no_answer(text, answer) && !cached.empty()) {
      is_silent() = true;
      return cached;
    }
    if (!text) return std::unexpected(text.error());
    auto page = TRY(parse_hub_page(*text, prefix));
    TRY(listing.add_page(std::move(page)));
    const std::string next = next_page(answer);
    if (next == url || (!next.empty() && uri_origin(resolve_reference(url, next)) != uri_origin(url))) {
      return fail(Errc::kCorrupt, "the list of files goes on at {}", quote(next));
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
  if (error) return fail(Errc::kWrite, "{}: cannot be linked: {}", escape(path.string()), error.message());
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
  if (!file || error) return fail(Errc::kWrite, "{}: cannot be written", escape(path.string()));
  return {};
}

}  // namespace ballast::remote
