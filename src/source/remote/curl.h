#pragma once

#include <curl/curl.h>

namespace ballast::remote {

// What is used of libcurl. It is loaded at the first request: with all that it brings along it would make every start of a
// program half as long again.
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

// Null if there is no libcurl.
const Curl* load_curl();

}  // namespace ballast::remote
