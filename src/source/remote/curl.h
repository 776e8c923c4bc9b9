#pragma once

#include <expected>
#include <string>

#include <curl/curl.h>

namespace ballast::remote {

// The functions of libcurl that Ballast calls. The library is loaded by the first request, because loading it with its
// dependencies takes half as long as everything else that a start of the program does.
struct Curl {
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  CURLcode (*easy_setopt)(CURL* handle, CURLoption option, ...);
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_getdate) getdate;
};

// Loads libcurl once for the process, or returns a message that says why it cannot be loaded and what to install. Thread safe.
const std::expected<Curl, std::string>& load_curl();

// As load_curl(), from the shared library `file`, which stays loaded.
std::expected<Curl, std::string> load_curl_from(const char* file);

}  // namespace ballast::remote
