#include "source/path/path.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <system_error>

#include <openssl/evp.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "source/remote/hub.h"
#include "source/remote/read_ahead.h"
#include "source/remote/remote_source.h"
#include "source/remote/retry.h"
#include "source/remote/s3.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using remote::Address;

constexpr const char* kHttpHint =
    "if the file needs a password, use https://USER:PASSWORD@host/...; if the URL is signed, get a new one";

bool is_s3(const std::string& path) { return uri_scheme(path) == "s3"; }
bool is_hub(const std::string& path) { return uri_scheme(path) == "hf"; }

std::unexpected<Error> fail_scheme(const std::string& path) {
  return fail(Errc::kUnsupported, "unsupported URI scheme {}://; use http, https, s3 or hf", escape(uri_scheme(path)));
}

Result<void> check_host(const std::string& path) {
  if (is_http(path) && !has_host(path)) return fail(Errc::kInvalidArgument, "the URL has no host");
  return {};
}

std::string base64(std::string_view text) {
  std::string encoded((text.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()), reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  encoded.pop_back();
  return encoded;
}

// Moves the user name and password of a URL into a header, so that they appear in no message.
Address http_address(const std::string& uri) {
  const std::string_view given = std::string_view(uri).substr(0, uri.find('#'));
  const std::size_t host = given.find("://") + 3;
  const std::size_t at = given.substr(0, given.find_first_of("/?", host)).rfind('@');
  const bool has_user = at != std::string_view::npos && at >= host;
  Address address{.url = std::string(given.substr(0, host)), .hint = kHttpHint};
  for (const char c : given.substr(has_user ? at + 1 : host)) {
    if (c == ' ') {
      address.url += "%20";
    } else {
      address.url += c;
    }
  }
  if (has_user) {
    const std::string user = percent_decode(given.substr(host, at - host));
    address.sign = [header = fmt::format("Authorization: Basic {}", base64(user))] { return std::vector<std::string>{header}; };
  }
  return address;
}

Result<std::unique_ptr<Source>> open_address(Address address, const ReadOptions& options) {
  auto file = TRY(remote::RemoteFile::open(std::move(address), remote::kFrontBytes, options.stop));
  return remote::read_ahead(remote::open_remote_source(std::move(file)));
}

// The path of a Hub file in the local cache, or nothing. `path` is pinned.
Result<std::optional<std::string>> find_cached(const std::string& path) {
  const auto location = TRY(remote::parse_hub_location(path));
  auto cached = remote::HubCache(location.repo).find(location.revision, location.file);
  if (!cached && remote::is_hub_offline()) return remote::fail_not_cached();
  return cached;
}

// The file with its size, or nothing if it does not exist.
Result<std::optional<ListedFile>> probe(const std::string& folder, std::string_view name, const ReadOptions& options) {
  const auto file = remote::RemoteFile::open(http_address(join_path(folder, name)), 1, options.stop);
  if (file) return ListedFile{.name = std::string(name), .size = (*file)->version().size};
  if (file.error().code == Errc::kNotFound) return std::nullopt;
  return std::unexpected(file.error());
}

// Some servers, including S3, return 403 for a missing file if the user may read files but not list them.
bool is_forbidden(const Error& error) { return error.system_error == EACCES; }

Result<std::vector<ListedFile>> probe_folder(const std::string& folder, const ReadOptions& options) {
  TRY(check_host(folder));
  std::mutex mutex;
  std::vector<ListedFile> files;
  std::optional<Error> forbidden;
  TRY(try_parallel(kKnownFiles.size(), remote::kConnections, [&](unsigned, std::size_t i) -> Result<void> {
    auto found = probe(folder, kKnownFiles[i].name, options);
    const std::scoped_lock lock(mutex);
    if (!found && !is_forbidden(found.error())) return std::unexpected(std::move(found.error()));
    if (!found) forbidden = std::move(found.error());
    if (found && *found) files.push_back(std::move(**found));
    return {};
  }));
  if (forbidden && files.empty()) return std::unexpected(std::move(*forbidden));
  return files;
}

Result<std::vector<ListedFile>> list_local(const std::string& folder) {
  std::error_code error;
  std::vector<ListedFile> files;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const bool is_regular = entry->is_regular_file(ignored);
    files.push_back({.name = entry->path().filename().string(),
                     .size = is_regular ? entry->file_size(ignored) : 0,
                     .is_regular = is_regular});
  }
  if (error) return fail_errno(Errc::kIo, error.value(), "cannot list the directory");
  return files;
}

Result<std::vector<ListedFile>> list_local_tree(const std::string& folder) {
  std::error_code error;
  std::vector<ListedFile> files;
  fs::recursive_directory_iterator entry(folder, error);
  for (const fs::recursive_directory_iterator end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    const bool is_folder = entry->is_directory(ignored) && !entry->is_symlink(ignored);
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    if (is_folder) continue;
    const bool is_regular = entry->is_regular_file(ignored);
    files.push_back({.name = entry->path().lexically_relative(folder).string(),
                     .size = is_regular ? entry->file_size(ignored) : 0,
                     .is_regular = is_regular});
  }
  if (error) return fail_errno(Errc::kIo, error.value(), "cannot list the directory");
  std::ranges::sort(files, {}, &ListedFile::name);
  return files;
}

}  // namespace

Result<Address> address_of(const std::string& uri) {
  TRY(check_host(uri));
  if (is_http(uri)) return http_address(uri);
  if (is_s3(uri)) return remote::s3_address(uri);
  if (!is_hub(uri)) return fail_scheme(uri);
  const auto location = TRY(remote::parse_hub_location(uri));
  if (location.file.empty())
    return fail(Errc::kInvalidArgument, "this URI is a model, not a file; add the file's name: hf://org/repo/file");
  return remote::hub_address(location);
}

Result<std::unique_ptr<Source>> open_path(const std::string& path, const ReadOptions& options) {
  if (!is_uri(path)) return open_file(path, options.access, options.map_mode);
  const auto pinned = TRY(pin_path(path, options));
  if (is_hub(path)) {
    const auto cached = TRY(find_cached(pinned));
    if (cached) return open_file(*cached, options.access, options.map_mode);
  }
  auto address = TRY(address_of(pinned));
  return open_address(std::move(address), options);
}

Result<std::string> read_text(const std::string& path, const ReadOptions& options) {
  const auto source = TRY(open_path(path, {.access = Access::kPread, .stop = options.stop}));
  return read_text(*source);
}

bool is_folder(const std::string& path) {
  if (!is_uri(path)) {
    std::error_code error;
    return fs::is_directory(path, error);
  }
  if (is_hub(path)) {
    const auto location = remote::parse_hub_location(path);
    if (!location || location->file.empty()) return location.has_value();
  }
  return !has_file_suffix(file_name(path));
}

bool is_absent(const Error& error) { return error.code == Errc::kNotFound || is_forbidden(error); }

Result<bool> exists(const std::string& path, const ReadOptions& options) {
  if (is_uri(path)) {
    const auto opened = open_path(path, options);
    if (!opened && !is_absent(opened.error())) return std::unexpected(opened.error());
    return opened.has_value();
  }
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

std::uint64_t size_of(const std::string& file) {
  if (is_uri(file)) {
    const auto source = open_path(file);
    return source ? (*source)->size() : 0;
  }
  std::error_code unknown;
  const std::uintmax_t size = fs::file_size(file, unknown);
  return unknown ? 0 : size;
}

Result<std::vector<ListedFile>> list_folder(const std::string& folder, const ReadOptions& options) {
  auto files = TRY(is_uri(folder) ? list_tree(folder, options) : list_local(folder));
  std::erase_if(files, [](const ListedFile& file) { return file.name.find('/') != std::string::npos; });
  std::ranges::sort(files, {}, &ListedFile::name);
  return files;
}

Result<std::vector<ListedFile>> list_tree(const std::string& folder, const ReadOptions& options) {
  if (!is_uri(folder)) return list_local_tree(folder);
  if (is_http(folder)) return probe_folder(folder, options);
  if (is_s3(folder)) return remote::list_s3(folder, options.stop);
  if (!is_hub(folder)) return fail_scheme(folder);
  auto location = remote::parse_hub_location(folder);
  if (location) location = remote::pin(std::move(*location), options.stop);
  if (!location) return std::unexpected(location.error());
  return remote::list_hub(*location, options.stop);
}

Result<std::string> pin_path(const std::string& path, const ReadOptions& options) {
  TRY(check_host(path));
  if (!is_hub(path)) return path;
  auto location = remote::parse_hub_location(path);
  if (location) location = remote::pin(std::move(*location), options.stop);
  if (!location) return std::unexpected(location.error());
  return location->uri();
}

}  // namespace ballast
