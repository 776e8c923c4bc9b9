#include "source/remote/curl.h"

#include <dlfcn.h>

namespace ballast::remote {
namespace {

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

const Curl* load() {
  void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static Curl curl{};
  decltype(&curl_global_init) global_init = nullptr;
  const bool is_whole =
      find(library, "curl_global_init", global_init) && find(library, "curl_easy_init", curl.easy_init) &&
      find(library, "curl_easy_cleanup", curl.easy_cleanup) && find(library, "curl_easy_reset", curl.easy_reset) &&
      find(library, "curl_easy_setopt", curl.easy_setopt) && find(library, "curl_easy_perform", curl.easy_perform) &&
      find(library, "curl_easy_strerror", curl.easy_strerror) && find(library, "curl_slist_append", curl.slist_append) &&
      find(library, "curl_slist_free_all", curl.slist_free_all) && find(library, "curl_getdate", curl.getdate);
  return is_whole && global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? &curl : nullptr;
}

}  // namespace

const Curl* load_curl() {
  static const Curl* const curl = load();
  return curl;
}

}  // namespace ballast::remote
