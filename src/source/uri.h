#pragma once

#include <string>
#include <string_view>

#include <ballast/text.h>

namespace ballast {

// Whether `path` starts with a scheme and "://". Everything else is a local path.
bool is_uri(std::string_view path);

std::string uri_scheme(std::string_view uri);  // in lowercase, such as https; empty for paths
bool is_http(std::string_view uri);            // http or https

bool has_host(std::string_view uri);

// These accept paths and URIs. The query of a URI is not part of a name; it is kept for parents and children.
std::string file_name(const std::string& path);
std::string parent_path(const std::string& path);
std::string join_path(const std::string& folder, std::string_view name);

// The path or URI for messages: without secrets and escaped.
std::string shown(const std::string& path);

// Encodes every byte as %XX except letters, digits, -._~ and those in `safe`.
std::string percent_encode(std::string_view text, std::string_view safe = {});
std::string percent_decode(std::string_view text);

// Resolves a URI reference, such as that of a Location header, against the URI of the request.
std::string resolve_reference(const std::string& base, const std::string& reference);

// Scheme, host and port. Credentials must not be sent to another origin.
std::string uri_origin(std::string_view uri);

}  // namespace ballast
