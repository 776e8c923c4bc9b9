#include "source/remote/s3.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>

#include <pugixml.hpp>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/remote/environment.h"
#include "source/remote/retry.h"
#include "source/remote/sigv4.h"
#include "source/text.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

constexpr std::uint64_t kLargestListing = 16 << 20;
constexpr const char* kCredentialsHint =
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to credentials with read access";

using Section = std::map<std::string, std::string, std::less<>>;

// The settings in section [name] or [profile name] of an AWS config file; nothing if there is no such section.
std::optional<Section> read_section(const std::string& path, std::string_view name) {
  const auto text = read_text_file(path);
  if (!text) return std::nullopt;
  std::optional<Section> section;
  bool is_inside = false;
  for (std::string_view left = *text; !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    const std::string_view line = trimmed(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const std::string_view head = trimmed(line.substr(1, std::min(line.find(']'), line.size()) - 1));
      is_inside = head == name || (head.starts_with("profile ") && trimmed(head.substr(8)) == name);
      if (is_inside && !section) section.emplace();
      continue;
    }
    const std::size_t equals = line.find('=');
    if (is_inside && equals != std::string_view::npos) {
      section->emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
    }
  }
  return section;
}

struct Settings {
  std::optional<Credentials> credentials;
  std::string region;
  std::string endpoint;  // empty for AWS itself
  std::string ca_file;
};

Result<Settings> read_settings() {
  const std::string home = environment({"HOME"});
  const std::string profile = environment({"AWS_PROFILE", "AWS_DEFAULT_PROFILE"});
  const std::string section = profile.empty() ? "default" : profile;
  const auto shared = read_section(environment({"AWS_SHARED_CREDENTIALS_FILE"}, home + "/.aws/credentials"), section);
  const auto config = read_section(environment({"AWS_CONFIG_FILE"}, home + "/.aws/config"), section);
  if (!profile.empty() && !shared && !config) {
    return fail(Errc::kInvalidArgument, "AWS_PROFILE is {}, but neither ~/.aws/credentials nor ~/.aws/config has this profile",
                quote(profile));
  }
  const auto in_files = [&](std::string_view name) {
    for (const auto* const members : {&shared, &config}) {
      if (!*members) continue;
      if (const auto found = (*members)->find(name); found != (*members)->end()) return found->second;
    }
    return std::string();
  };
  Settings settings{.region = environment({"AWS_REGION", "AWS_DEFAULT_REGION"}, in_files("region")),
                    .endpoint = environment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, in_files("endpoint_url")),
                    .ca_file = environment({"AWS_CA_BUNDLE"}, in_files("ca_bundle"))};
  if (settings.region.empty()) settings.region = "us-east-1";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (is_enabled({"AWS_NO_SIGN_REQUEST"})) return settings;
  Credentials found{.key_id = environment({"AWS_ACCESS_KEY_ID"}),
                    .secret = environment({"AWS_SECRET_ACCESS_KEY"}),
                    .token = environment({"AWS_SESSION_TOKEN"})};
  if (found.key_id.empty() || found.secret.empty()) {
    found = {.key_id = in_files("aws_access_key_id"),
             .secret = in_files("aws_secret_access_key"),
             .token = in_files("aws_session_token")};
  }
  if (!found.key_id.empty() && !found.secret.empty()) settings.credentials = std::move(found);
  return settings;
}

// The regions of buckets, as AWS reported them after a request to another region.
class BucketRegions {
 public:
  std::optional<std::string> find(const std::string& bucket) {
    const std::scoped_lock lock(mutex_);
    const auto found = regions_.find(bucket);
    return found == regions_.end() ? std::nullopt : std::optional(found->second);
  }
  void set(const std::string& bucket, const std::string& region) {
    const std::scoped_lock lock(mutex_);
    regions_[bucket] = region;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> regions_;
};

BucketRegions& bucket_regions() {
  static BucketRegions regions;
  return regions;
}

// The bucket's region in an error response. Validated, because it becomes part of a host name.
std::string region_in(const Response& refused) {
  std::string region(refused.find("x-amz-bucket-region").value_or(""));
  constexpr std::string_view kOpen = "<Region>";
  const std::size_t begin = refused.text.find(kOpen);
  const std::size_t end = refused.text.find("</Region>");
  if (region.empty() && begin < end && end != std::string::npos) {
    region = refused.text.substr(begin + kOpen.size(), end - begin - kOpen.size());
  }
  constexpr std::size_t kLongest = 32;
  const bool is_name = region.size() <= kLongest && std::ranges::all_of(region, [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                       });
  return is_name ? region : "";
}

struct Object {
  std::string bucket;
  std::string key;
};

Result<Object> parse(const std::string& uri) {
  const std::string_view rest = std::string_view(uri).substr(std::string_view("s3://").size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  Object object{.bucket = std::string(rest.substr(0, slash)), .key = std::string(rest.substr(std::min(slash + 1, rest.size())))};
  if (object.bucket.empty()) return fail(Errc::kInvalidArgument, "the URI has no bucket; expected s3://bucket/folder/file");
  const bool is_name = std::ranges::all_of(object.bucket, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  if (!is_name) return fail(Errc::kInvalidArgument, "a bucket name may contain only letters, digits, '-', '.' and '_'");
  return object;
}

// The bucket is part of the host name, except if it contains dots, which certificates do not cover, and for services other than
// AWS.
std::string url_of(const Settings& settings, const Object& object) {
  const std::string key = percent_encode(object.key, "/");
  if (!settings.endpoint.empty()) return fmt::format("{}/{}/{}", settings.endpoint, object.bucket, key);
  const char* const china = settings.region.starts_with("cn-") ? ".cn" : "";
  if (object.bucket.find('.') != std::string::npos) {
    return fmt::format("https://s3.{}.amazonaws.com{}/{}/{}", settings.region, china, object.bucket, key);
  }
  return fmt::format("https://{}.s3.{}.amazonaws.com{}/{}", object.bucket, settings.region, china, key);
}

std::vector<std::string> headers_of(const Settings& settings, const SignedRequest& request) {
  if (settings.credentials) return sign_v4(request, settings.region, "s3", *settings.credentials, std::time(nullptr));
  std::vector<std::string> headers;
  for (const auto& [name, value] : request.headers) headers.push_back(fmt::format("{}: {}", name, value));
  return headers;
}

// The settings with the bucket's region, if it is known.
Result<Settings> settings_for(const Object& object) {
  auto settings = TRY(read_settings());
  if (const auto region = bucket_regions().find(object.bucket)) settings.region = *region;
  return settings;
}

Address make_address(const Settings& settings, const Object& object) {
  Address address{.url = url_of(settings, object), .ca_file = settings.ca_file, .hint = kCredentialsHint};
  address.sign = [settings, url = address.url] { return headers_of(settings, {.method = "GET", .url = url, .headers = {}}); };
  address.relocate = [settings, object](const Response& refused) -> std::optional<Address> {
    const std::string region = region_in(refused);
    if (region.empty() || region == settings.region) return std::nullopt;
    bucket_regions().set(object.bucket, region);
    Settings moved = settings;
    moved.region = region;
    Address next = make_address(moved, object);
    next.relocate = {};  // relocate only once
    return next;
  };
  return address;
}

// Fetches one page of an object list.
Result<std::string> get_page(const Object& bucket, const std::string& query, const StopToken& stop) {
  for (int tries = 0;; ++tries) {
    const auto settings = TRY(settings_for(bucket));
    const std::string url = fmt::format("{}?{}", url_of(settings, bucket), query);
    Response response;
    const auto xml = get_text(
        [&] {
          return Request{.url = url,
                         .secret_headers = headers_of(settings, {.method = "GET", .url = url, .headers = {}}),
                         .ca_file = settings.ca_file};
        },
        kLargestListing, stop, &response);
    if (xml || response.status == 0) return xml;
    const std::string region = region_in(response);
    if (tries > 0 || region.empty() || region == settings.region)
      return std::unexpected(response_error(response, kCredentialsHint));
    bucket_regions().set(bucket.bucket, region);
  }
}

}  // namespace

Result<S3Page> parse_s3_page(const std::string& xml, std::string_view prefix) {
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size())) return fail(Errc::kCorrupt, "the object list is not XML");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) return fail(Errc::kCorrupt, "the object list has no ListBucketResult");
  const bool is_encoded = std::string_view(root.child_value("EncodingType")) == "url";
  S3Page page;
  for (const pugi::xml_node object : root.children("Contents")) {
    std::string key = object.child_value("Key");
    if (is_encoded) {
      std::ranges::replace(key, '+', ' ');
      key = percent_decode(key);
    }
    if (!key.starts_with(prefix) || key.ends_with('/')) continue;
    page.files.push_back({.name = key.substr(prefix.size()), .size = object.child("Size").text().as_ullong()});
  }
  if (root.child("IsTruncated").text().as_bool()) page.next = root.child_value("NextContinuationToken");
  return page;
}

Result<Address> s3_address(const std::string& uri) {
  const auto object = TRY(parse(uri));
  if (object.key.empty())
    return fail(Errc::kInvalidArgument, "the URI names a bucket but no file; expected s3://bucket/folder/file");
  const auto settings = TRY(settings_for(object));
  return make_address(settings, object);
}

Result<Response> request_s3_checksums(const std::string& uri, const StopToken& stop) {
  const auto object = TRY(parse(uri));
  const auto settings = TRY(settings_for(object));
  const std::string url = url_of(settings, object);
  Retry retry(Retry::Partial::kDiscarded, stop);
  return retry.send(
      [&] {
        const SignedRequest request{.method = "HEAD", .url = url, .headers = {{"x-amz-checksum-mode", "ENABLED"}}};
        return Request{.url = url, .secret_headers = headers_of(settings, request), .ca_file = settings.ca_file, .is_head = true};
      },
      [](const Response&, std::span<const std::byte>) { return true; });
}

Result<std::vector<ListedFile>> list_s3(const std::string& uri, const StopToken& stop) {
  const auto folder = TRY(parse(uri));
  std::string prefix = folder.key;
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  Listing listing;
  std::string token;
  do {
    const std::string more = token.empty() ? "" : fmt::format("continuation-token={}&", percent_encode(token));
    const auto xml = TRY(get_page({.bucket = folder.bucket, .key = ""},
                                  fmt::format("{}encoding-type=url&list-type=2&prefix={}", more, percent_encode(prefix)), stop));
    auto page = TRY(parse_s3_page(xml, prefix));
    TRY(listing.add_page(std::move(page.files)));
    token = std::move(page.next);
  } while (!token.empty());
  return std::move(listing).files();
}

}  // namespace ballast::remote
