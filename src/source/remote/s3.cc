#include "source/remote/s3.h"

#include <algorithm>
#include <map>
#include <optional>

#include <pugixml.hpp>

#include "base/fail.h"
#include "base/text.h"
#include "source/place.h"
#include "source/remote/environment.h"
#include "source/remote/patience.h"
#include "source/remote/sigv4.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

constexpr std::uint64_t kLargestPage = 16 << 20;
constexpr std::size_t kMostFiles = 100'000;
constexpr const char* kHint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to credentials that may read it";

using Section = std::map<std::string, std::string, std::less<>>;

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// The members of [name] in a file of AWS's tools; none if it cannot be read.
Section read_section(const std::string& path, std::string_view name) {
  Section section;
  const auto text = read_text(path);
  if (!text) return section;
  bool is_inside = false;
  for (std::string_view left = *text; !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    const std::string_view line = trimmed(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      const std::string_view head = trimmed(line.substr(1, std::min(line.find(']'), line.size()) - 1));
      is_inside = head == name || (head.starts_with("profile ") && trimmed(head.substr(8)) == name);
      continue;
    }
    const std::size_t equals = line.find('=');
    if (is_inside && equals != std::string_view::npos) {
      section.emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
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

Settings read_settings() {
  const std::string home = environment({"HOME"});
  const std::string profile = environment({"AWS_PROFILE"}, "default");
  const Section shared = read_section(environment({"AWS_SHARED_CREDENTIALS_FILE"}, home + "/.aws/credentials"), profile);
  const Section config = read_section(environment({"AWS_CONFIG_FILE"}, home + "/.aws/config"), profile);
  const auto in_files = [&](std::string_view name) {
    for (const Section* const section : {&shared, &config}) {
      if (const auto found = section->find(name); found != section->end()) return found->second;
    }
    return std::string();
  };
  Settings settings{.region = environment({"AWS_REGION", "AWS_DEFAULT_REGION"}, in_files("region")),
                    .endpoint = environment({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, in_files("endpoint_url")),
                    .ca_file = environment({"AWS_CA_BUNDLE"}, in_files("ca_bundle"))};
  if (settings.region.empty()) settings.region = "us-east-1";
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const std::string unsigned_switch = environment({"AWS_NO_SIGN_REQUEST"});
  if (unsigned_switch == "1" || unsigned_switch == "true" || unsigned_switch == "YES" || unsigned_switch == "yes")
    return settings;
  Credentials found{.key_id = environment({"AWS_ACCESS_KEY_ID"}),
                    .secret = environment({"AWS_SECRET_ACCESS_KEY"}),
                    .token = environment({"AWS_SESSION_TOKEN"})};
  const bool is_profile_wanted = !environment({"AWS_PROFILE"}).empty();
  if (is_profile_wanted || found.key_id.empty() || found.secret.empty()) {
    Credentials filed{.key_id = in_files("aws_access_key_id"),
                      .secret = in_files("aws_secret_access_key"),
                      .token = in_files("aws_session_token")};
    if (!filed.key_id.empty() && !filed.secret.empty()) found = std::move(filed);
  }
  if (!found.key_id.empty() && !found.secret.empty()) settings.credentials = std::move(found);
  return settings;
}

struct Object {
  std::string bucket;
  std::string key;
};

Result<Object> parse(const std::string& uri) {
  const std::string_view rest = std::string_view(uri).substr(std::string_view("s3://").size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  Object object{.bucket = std::string(rest.substr(0, slash)), .key = std::string(rest.substr(std::min(slash + 1, rest.size())))};
  if (object.bucket.empty()) return fail(Errc::kInvalidArgument, "names no bucket: s3://bucket/folder/file");
  const bool is_name = std::ranges::all_of(object.bucket, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  if (!is_name) return fail(Errc::kInvalidArgument, "{} is no name of a bucket", quote(object.bucket));
  return object;
}

// Buckets are hosts of their own, but for names with dots, which certificates do not cover, and other services than AWS.
std::string url_of(const Settings& settings, const Object& object) {
  const std::string key = percent_encode(object.key, "/");
  if (!settings.endpoint.empty()) return fmt::format("{}/{}/{}", settings.endpoint, object.bucket, key);
  if (object.bucket.find('.') != std::string::npos) {
    return fmt::format("https://s3.{}.amazonaws.com/{}/{}", settings.region, object.bucket, key);
  }
  return fmt::format("https://{}.s3.{}.amazonaws.com/{}", object.bucket, settings.region, key);
}

Address address_of(const Settings& settings, std::string url) {
  Address address{.url = std::move(url), .ca_file = settings.ca_file, .hint = kHint};
  if (settings.credentials) {
    address.sign = [url = address.url, region = settings.region, credentials = *settings.credentials] {
      return sign_v4("GET", url, region, "s3", credentials, std::time(nullptr));
    };
  }
  return address;
}

struct Page {
  std::vector<ListedFile> files;
  std::string next;  // token, empty on the last page
};

Result<Page> parse_page(const std::string& xml, std::string_view prefix) {
  pugi::xml_document document;
  if (!document.load_buffer(xml.data(), xml.size())) return fail(Errc::kCorrupt, "the list of objects is no XML");
  const pugi::xml_node root = document.child("ListBucketResult");
  if (!root) return fail(Errc::kCorrupt, "the list of objects has no ListBucketResult");
  Page page;
  for (const pugi::xml_node object : root.children("Contents")) {
    const std::string key = percent_decode(object.child_value("Key"));
    if (!key.starts_with(prefix) || key.ends_with('/')) continue;
    page.files.push_back({.name = key.substr(prefix.size()), .size = object.child("Size").text().as_ullong()});
  }
  if (root.child("IsTruncated").text().as_bool()) page.next = root.child_value("NextContinuationToken");
  return page;
}

}  // namespace

Result<Address> s3_address(const std::string& uri) {
  const auto object = parse(uri);
  if (!object) return std::unexpected(object.error());
  if (object->key.empty()) return fail(Errc::kInvalidArgument, "names a bucket and no file in it");
  const Settings settings = read_settings();
  return address_of(settings, url_of(settings, *object));
}

Result<std::vector<ListedFile>> list_s3(const std::string& uri, const Interrupted& interrupted) {
  const auto folder = parse(uri);
  if (!folder) return std::unexpected(folder.error());
  const Settings settings = read_settings();
  std::string prefix = folder->key;
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  const std::string base = url_of(settings, {.bucket = folder->bucket, .key = ""});

  std::vector<ListedFile> files;
  std::string token;
  do {
    const std::string more = token.empty() ? "" : fmt::format("continuation-token={}&", percent_encode(token));
    const Address address =
        address_of(settings, fmt::format("{}?{}encoding-type=url&list-type=2&prefix={}", base, more, percent_encode(prefix)));
    Answer answer;
    const auto xml = get_text(
        [&] {
          return Request{.url = address.url,
                         .secret_headers = address.sign ? address.sign() : std::vector<std::string>(),
                         .ca_file = address.ca_file};
        },
        kLargestPage, interrupted, &answer);
    if (!xml && answer.status != 0) return std::unexpected(refusal(answer, kHint));
    if (!xml) return std::unexpected(xml.error());
    auto page = parse_page(*xml, prefix);
    if (!page) return std::unexpected(page.error());
    std::ranges::move(page->files, std::back_inserter(files));
    if (files.size() > kMostFiles) return fail(Errc::kUnsupported, "has more than {} files", kMostFiles);
    if (page->next == token && !token.empty()) return fail(Errc::kCorrupt, "the list of objects does not end");
    token = page->next;
  } while (!token.empty());
  return files;
}

}  // namespace ballast::remote
