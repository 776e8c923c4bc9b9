#include "source/uri.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/text.h"

namespace ballast {
namespace {

constexpr std::string_view kMark = "://";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The part before the query. s3:// and hf:// URIs have no query: a `?` is part of the name.
std::string_view before_query(std::string_view uri) {
  const std::string scheme = uri_scheme(uri);
  return scheme == "s3" || scheme == "hf" ? uri : uri.substr(0, uri.find_first_of("?#"));
}

// The offset of the path: the slash after the host.
std::size_t path_start(std::string_view uri) {
  const std::size_t host = uri.find(kMark) + kMark.size();
  return std::min(uri.find_first_of("/?#", host), uri.size());
}

std::string_view host_of(std::string_view uri) {  // with its port
  std::string_view host = uri.substr(0, path_start(uri)).substr(uri.find(kMark) + kMark.size());
  host.remove_prefix(host.rfind('@') + 1);  // npos + 1 is 0
  return host;
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Removes `.` and `..` segments from a path that starts with a slash.
std::string without_dots(std::string_view path) {
  const std::string_view rest = path.substr(before_query(path).size());
  std::string clean;
  for (std::string_view left = before_query(path); !left.empty();) {
    const std::size_t end = std::min(left.find('/', 1), left.size());
    const std::string_view segment = left.substr(0, end);
    left.remove_prefix(end);
    if (segment == "/..") clean.erase(std::min(clean.rfind('/'), clean.size()));
    const bool is_dots = segment == "/." || segment == "/..";
    if (!is_dots) clean += segment;
    if (is_dots && left.empty()) clean += '/';
  }
  return clean.append(rest);
}

}  // namespace

bool is_uri(std::string_view path) {
  const std::size_t mark = path.find(kMark);
  if (mark == std::string_view::npos || mark == 0 || !is_letter(path[0])) return false;
  return std::ranges::all_of(path.substr(0, mark),
                             [](char c) { return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.'; });
}

std::string uri_scheme(std::string_view uri) {
  const std::size_t mark = uri.find(kMark);
  return lowercase(uri.substr(0, mark == std::string_view::npos ? 0 : mark));
}

bool is_http(std::string_view uri) { return uri_scheme(uri) == "http" || uri_scheme(uri) == "https"; }

bool has_host(std::string_view uri) { return !host_of(uri).empty() && host_of(uri).front() != ':'; }

std::string file_name(const std::string& path) {
  if (!is_uri(path)) return std::filesystem::path(path).filename().string();
  const std::string_view address = before_query(path);
  const std::string_view name = address.substr(address.rfind('/') + 1);
  return is_http(path) ? percent_decode(name) : std::string(name);
}

std::string parent_path(const std::string& path) {
  if (!is_uri(path)) {
    const std::filesystem::path given(path);
    return given.has_parent_path() ? given.parent_path().string() : ".";
  }
  const std::string_view address = before_query(path);
  const std::size_t slash = std::max(address.rfind('/'), path_start(path));
  return std::string(address.substr(0, slash)).append(std::string_view(path).substr(address.size()));
}

std::string join_path(const std::string& folder, std::string_view name) {
  if (!is_uri(folder)) return (std::filesystem::path(folder) / name).string();
  const std::string_view address = before_query(folder);
  return fmt::format("{}{}{}{}", address, address.ends_with('/') ? "" : "/",
                     is_http(folder) ? percent_encode(name, "/") : std::string(name),
                     std::string_view(folder).substr(address.size()));
}

std::string without_secrets(const std::string& path) {
  if (!is_uri(path)) return path;
  std::string shown(before_query(path));
  if (uri_scheme(shown) == "hf") return shown;
  const std::size_t host = shown.find(kMark) + kMark.size();
  const std::string_view authority = std::string_view(shown).substr(host, path_start(shown) - host);
  const std::size_t colon = authority.rfind(':');
  const bool has_port = colon == std::string_view::npos || std::ranges::all_of(authority.substr(colon + 1), is_digit);
  // A password may contain a slash, which then looks like the end of the host, after an invalid port.
  const std::size_t end = authority.contains('@') || has_port || authority.contains('[') ? host + authority.size() : shown.size();
  const std::size_t at = std::string_view(shown).substr(0, end).rfind('@');
  if (at == std::string::npos || at < host) return shown;
  shown.erase(host, at + 1 - host);
  return without_secrets(shown);
}

std::string shown(const std::string& path) { return escape(without_secrets(path)); }

std::string percent_encode(std::string_view text, std::string_view safe) {
  std::string encoded;
  for (const char c : text) {
    if (is_letter(c) || is_digit(c) || std::string_view("-._~").contains(c) || safe.contains(c)) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low < 0) {
      decoded += text[i];
    } else {
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return decoded;
}

std::string resolve_reference(const std::string& base, const std::string& reference) {
  if (is_uri(reference)) return reference;
  const std::string_view origin = std::string_view(base).substr(0, path_start(base));
  if (reference.starts_with("//")) return fmt::format("{}:{}", uri_scheme(base), reference);
  if (reference.starts_with("/")) return fmt::format("{}{}", origin, without_dots(reference));
  const std::string_view path = before_query(base).substr(origin.size());
  if (reference.starts_with("?")) return fmt::format("{}{}{}", origin, path, reference);
  const std::string_view folder = path.substr(0, path.rfind('/') + 1);
  return fmt::format("{}{}", origin, without_dots(fmt::format("{}{}", folder.empty() ? "/" : folder, reference)));
}

std::string uri_origin(std::string_view uri) {
  const std::string_view host = host_of(uri);
  const std::string scheme = uri_scheme(uri);
  std::string origin = lowercase(fmt::format("{}://{}", scheme, host));
  const bool has_port = host.find_last_of(":]") != std::string_view::npos && host[host.find_last_of(":]")] == ':';
  if (!has_port) origin += origin.starts_with("https:") ? ":443" : ":80";
  return origin;
}

}  // namespace ballast
