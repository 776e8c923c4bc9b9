#include "source/remote/curl.h"

#include <string_view>

#include <dlfcn.h>

#include <fmt/format.h>

#include "base/dl_error.h"
#include "base/text.h"

namespace ballast::remote {
namespace {

constexpr unsigned kOldest = 0x075500;  // 7.85.0, the first with CURLOPT_PROTOCOLS_STR

// The package has this name in Debian 12 and is provided under it in later releases and in Ubuntu.
constexpr const char* kAdvice = "install libcurl 7.85 or later (Debian and Ubuntu: apt install libcurl4)";

std::unexpected<std::string> refuse(std::string_view reason) {
  return std::unexpected(fmt::format("cannot load libcurl: {}; {}", reason, kAdvice));
}

}  // namespace

std::expected<Curl, std::string> load_curl_from(const char* file) {
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return refuse(last_dl_error());
  const char* absent = nullptr;
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr && absent == nullptr) absent = name;
    return function != nullptr;
  };

  decltype(&curl_version_info) version_info = nullptr;
  if (find("curl_version_info", version_info)) {
    const curl_version_info_data* const version = version_info(CURLVERSION_NOW);
    if (version->version_num < kOldest) return refuse(fmt::format("{} has version {}", file, escape(version->version)));
  }
  Curl curl{};
  decltype(&curl_global_init) global_init = nullptr;
  find("curl_global_init", global_init);
  find("curl_easy_init", curl.easy_init);
  find("curl_easy_cleanup", curl.easy_cleanup);
  find("curl_easy_reset", curl.easy_reset);
  find("curl_easy_setopt", curl.easy_setopt);
  find("curl_easy_perform", curl.easy_perform);
  find("curl_easy_strerror", curl.easy_strerror);
  find("curl_slist_append", curl.slist_append);
  find("curl_slist_free_all", curl.slist_free_all);
  find("curl_getdate", curl.getdate);
  if (absent != nullptr) return refuse(fmt::format("{} has no function {}", file, absent));
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return refuse(fmt::format("{}: curl_global_init failed", file));
  return curl;
}

const std::expected<Curl, std::string>& load_curl() {
  static const std::expected<Curl, std::string> curl = load_curl_from("libcurl.so.4");
  return curl;
}

}  // namespace ballast::remote
