#pragma once

#include <ctime>
#include <map>
#include <string>
#include <vector>

namespace ballast::remote {

struct Credentials {
  std::string key_id;
  std::string secret;
  std::string token;  // session token; may be empty
};

struct SignedRequest {
  std::string method;                          // GET or HEAD, without a body
  std::string url;                             // exactly as it is sent
  std::map<std::string, std::string> headers;  // additional x-amz- headers; names in lowercase
};

// Signs a request with AWS Signature Version 4. Returns all headers to send, including request.headers.
std::vector<std::string> sign_v4(const SignedRequest& request, const std::string& region, const std::string& service,
                                 const Credentials& credentials, std::time_t now);

}  // namespace ballast::remote
