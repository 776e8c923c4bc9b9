#pragma once

#include <ctime>
#include <string>
#include <vector>

namespace ballast::remote {

struct Credentials {
  std::string key_id;
  std::string secret;
  std::string token;  // of a session, may be empty
};

// The headers that sign a GET or HEAD without a body by AWS Signature Version 4. `url` must be as it goes out.
std::vector<std::string> sign_v4(const std::string& method, const std::string& url, const std::string& region,
                                 const std::string& service, const Credentials& credentials, std::time_t now);

}  // namespace ballast::remote
