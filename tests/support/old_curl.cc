// A libcurl of an unsupported version.

#include <curl/curl.h>

extern "C" curl_version_info_data* curl_version_info(CURLversion) {
  static curl_version_info_data data{};
  data.version = "7.81.0";
  data.version_num = 0x075100;
  return &data;
}
