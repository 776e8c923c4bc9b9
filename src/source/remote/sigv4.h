#pragma once

#include <ctime>
#include <map>
#include <string>
#include <vector>

namespace ballast::remote {

struct Credentials {
  std::string key_id;
  std::string secret;
  std::string token;  // of a session, may be empty
};

struct SignedRequest {
  std::string method;                          // GET or HEAD, without a body
  std::string url;                             // as it goes out
  std::map<std::string, std::string> headers;  // other ones whose names begin with x-amz-, in small letters
};

// The headers of a request that is signed by AWS Signature Version 4, the given ones among them.
std::vector<std::string> sign_v4(const SignedRequest& request, const std::string& region, const std::string& service,
                                 const Credentials& credentials, std::time_t now);

}  // namespace ballast::remote
