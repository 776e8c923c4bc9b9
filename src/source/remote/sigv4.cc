#include "source/remote/sigv4.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/hmac.h>

#include "base/bytes.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast::remote {
namespace {

using Digest = std::array<unsigned char, 32>;

Digest hmac(std::span<const unsigned char> key, std::string_view text) {
  Digest digest{};
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       digest.data(), nullptr);
  return digest;
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

struct Parts {
  std::string host;
  std::string path;
  std::string query;
};

// The parameters sorted, each with `=`.
std::string canonical_query(std::string_view query) {
  std::vector<std::string> members;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    std::string member(query.substr(0, end));
    if (member.find('=') == std::string::npos) member += '=';
    members.push_back(std::move(member));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  std::ranges::sort(members);
  return fmt::format("{}", fmt::join(members, "&"));
}

Parts split(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t path = std::min(url.find_first_of("/?", host), url.size());
  const std::size_t query = std::min(url.find('?', path), url.size());
  Parts parts{.host = url.substr(host, path - host), .path = url.substr(path, query - path)};
  if (parts.path.empty()) parts.path.push_back('/');
  if (query < url.size()) parts.query = canonical_query(std::string_view(url).substr(query + 1));
  return parts;
}

}  // namespace

std::vector<std::string> sign_v4(const SignedRequest& request, const std::string& region, const std::string& service,
                                 const Credentials& credentials, std::time_t now) {
  const Parts parts = split(request.url);
  const std::string time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(now));
  const std::string day = time.substr(0, 8);
  const std::string body_hash = sha256_hex("");

  std::map<std::string, std::string> headers = request.headers;
  headers.insert({{"x-amz-content-sha256", body_hash}, {"x-amz-date", time}});
  if (!credentials.token.empty()) headers.emplace("x-amz-security-token", credentials.token);
  std::string signed_headers = fmt::format("host:{}\n", parts.host);  // sorts before all x-amz- headers
  std::string names = "host";
  for (const auto& [name, value] : headers) {
    signed_headers += fmt::format("{}:{}\n", name, value);
    names += fmt::format(";{}", name);
  }
  const std::string canonical =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, parts.path, parts.query, signed_headers, names, body_hash);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", day, region, service);
  const std::string to_sign = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical));

  const std::string first = fmt::format("AWS4{}", credentials.secret);
  Digest key = hmac({reinterpret_cast<const unsigned char*>(first.data()), first.size()}, day);
  for (const std::string_view text : {std::string_view(region), std::string_view(service), std::string_view("aws4_request")}) {
    key = hmac(key, text);
  }
  std::vector<std::string> lines{
      fmt::format("Authorization: AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={:02x}", credentials.key_id,
                  scope, names, fmt::join(hmac(key, to_sign), ""))};
  for (const auto& [name, value] : headers) lines.push_back(fmt::format("{}: {}", name, value));
  return lines;
}

}  // namespace ballast::remote
