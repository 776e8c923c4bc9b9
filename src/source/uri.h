#pragma once

#include <string>
#include <string_view>

#include <ballast/text.h>

namespace ballast {

// https://host/dir/model.safetensors?key=value and the like, whatever the scheme. Everything else is a path of this machine.
bool is_uri(std::string_view path);

std::string uri_scheme(std::string_view uri);  // https, in small letters; empty for paths
bool is_http(std::string_view uri);            // or https

bool has_host(std::string_view uri);

// These take paths and URIs alike. The query of a URI goes along to the files below it and is no part of a name.
std::string file_name(const std::string& path);
std::string parent_path(const std::string& path);
std::string join_path(const std::string& folder, std::string_view name);

// Without secrets, and safe to print.
std::string shown(const std::string& path);

// Every byte but letters, digits and -._~ becomes %XX; those in `kept`, too, stay.
std::string percent_encode(std::string_view text, std::string_view kept = {});
std::string percent_decode(std::string_view text);

// What a Location header says, seen from the address that was asked.
std::string resolve_reference(const std::string& base, const std::string& reference);

// Scheme, host and port: what credentials are meant for.
std::string uri_origin(std::string_view uri);

}  // namespace ballast
