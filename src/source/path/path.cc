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
#include "source/remote/patience.h"
#include "source/remote/read_ahead.h"
#include "source/remote/remote_source.h"
#include "source/remote/s3.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using remote::Address;

bool is_s3(const std::string& path) { return uri_scheme(path) == "s3"; }
bool is_hub(const std::string& path) { return uri_scheme(path) == "hf"; }

std::unexpected<Error> fail_scheme(const std::string& path) {
  return fail(Errc::kUnsupported, "unknown URI scheme {}://: http, https, s3 and hf are supported", escape(uri_scheme(path)));
}

Result<void> check_host(const std::string& path) {
  if (is_http(path) && !has_host(path)) return fail(Errc::kInvalidArgument, "the address names no server");
  return {};
}

std::string base64(std::string_view text) {
  std::string made((text.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(made.data()), reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  made.pop_back();
  return made;
}

// A name and password in the address become a header, as they must not show up anywhere.
Address http_address(const std::string& uri) {
  const std::string_view given = std::string_view(uri).substr(0, uri.find('#'));
  const std::size_t host = given.find("://") + 3;
  const std::size_t at = given.substr(0, given.find_first_of("/?", host)).rfind('@');
  const bool has_user = at != std::string_view::npos && at >= host;
  Address address{.url = std::string(given.substr(0, host))};
  for (const char c : given.substr(has_user ? at + 1 : host)) {
    if (c == ' ') {
      address.url += "%20";
    } else {
      address.url += c;
    }
  }
  if (has_user) {
    const std::string who = percent_decode(given.substr(host, at - host));
    address.sign = [header = fmt::format("Authorization: Basic {}", base64(who))] { return std::vector<std::string>{header}; };
  }
  return address;
}

Result<std::unique_ptr<Source>> open_address(Address address, const ReadOptions& options) {
  auto file = TRY(remote::RemoteFile::open(std::move(address), remote::kFrontBytes, options.stop));
  return remote::read_ahead(remote::open_remote_source(std::move(file)));
}

// A file of the hub that the cache has, or nothing. `path` is pinned.
Result<std::optional<std::string>> find_cached(const std::string& path) {
  const auto place = TRY(remote::parse_hub_place(path));
  auto cached = remote::HubCache(place.repo).find(place.revision, place.file);
  if (!cached && remote::is_hub_offline()) {
    return fail(Errc::kNotFound, "the network is not to be used (HF_HUB_OFFLINE), and the cache does not have it");
  }
  return cached;
}

// Whether there is such a file, and how long it is.
Result<std::optional<ListedFile>> probe(const std::string& folder, std::string_view name, const ReadOptions& options) {
  const auto file = remote::RemoteFile::open(http_address(join_path(folder, name)), 1, options.stop);
  if (file) return ListedFile{.name = std::string(name), .size = (*file)->version().size};
  if (file.error().code == Errc::kNotFound) return std::nullopt;
  return std::unexpected(file.error());
}

// Some servers, S3 among them, refuse to tell those who may read files but not list them whether there is one.
bool is_refusal(const Error& error) { return error.system_error == EACCES; }

Result<std::vector<ListedFile>> probe_folder(const std::string& folder, const ReadOptions& options) {
  TRY(check_host(folder));
  std::mutex mutex;
  std::vector<ListedFile> files;
  std::optional<Error> refusal;
  TRY(try_parallel(kKnownFiles.size(), remote::kConnections, [&](unsigned, std::size_t i) -> Result<void> {
    auto found = probe(folder, kKnownFiles[i].name, options);
    const std::scoped_lock lock(mutex);
    if (!found && !is_refusal(found.error())) return std::unexpected(std::move(found.error()));
    if (!found) refusal = std::move(found.error());
    if (found && *found) files.push_back(std::move(**found));
    return {};
  }));
  if (refusal && files.empty()) return std::unexpected(std::move(*refusal));
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

}  // namespace

Result<Address> address_of(const std::string& uri) {
  TRY(check_host(uri));
  if (is_http(uri)) return http_address(uri);
  if (is_s3(uri)) return remote::s3_address(uri);
  if (!is_hub(uri)) return fail_scheme(uri);
  const auto place = TRY(remote::parse_hub_place(uri));
  if (place.file.empty()) return fail(Errc::kInvalidArgument, "names a model and no file of it");
  return remote::hub_address(place);
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
    const auto place = remote::parse_hub_place(path);
    if (!place || place->file.empty()) return place.has_value();
  }
  return !has_file_suffix(file_name(path));
}

bool is_absent(const Error& error) { return error.code == Errc::kNotFound || is_refusal(error); }

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
  if (is_http(folder)) return probe_folder(folder, options);
  if (is_s3(folder)) return remote::list_s3(folder, options.stop);
  if (!is_hub(folder)) return fail_scheme(folder);
  auto place = remote::parse_hub_place(folder);
  if (place) place = remote::pin(std::move(*place), options.stop);
  if (!place) return std::unexpected(place.error());
  return remote::list_hub(*place, options.stop);
}

Result<std::string> pin_path(const std::string& path, const ReadOptions& options) {
  TRY(check_host(path));
  if (!is_hub(path)) return path;
  auto place = remote::parse_hub_place(path);
  if (place) place = remote::pin(std::move(*place), options.stop);
  if (!place) return std::unexpected(place.error());
  return place->uri();
}

}  // namespace ballast
