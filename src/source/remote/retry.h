#pragma once

#include <functional>

#include <ballast/error.h>

#include "source/remote/http.h"

namespace ballast::remote {

// Retries after lost connections and after responses that say that the server is busy. Gives up after a number of failures in a
// row.
class Retry {
 public:
  // Whether the caller keeps the data of an interrupted transfer and resumes after it. Only then does it count as progress.
  enum class Partial { kKept, kDiscarded };
  Retry(Partial partial, const StopToken& stop, int attempts = kAttempts) : partial_(partial), stop_(stop), attempts_(attempts) {}

  static constexpr int kAttempts = 5;

  // Returns the first final response, success or not.
  Result<Response> send(const std::function<Request()>& make_request, const TakeBody& take);

  // Waits before the next attempt. Returns false if there were enough attempts or the work was cancelled.
  bool wait(std::optional<std::string_view> retry_after = {});

 private:
  Partial partial_;
  const StopToken& stop_;
  int attempts_;
  int failures_ = 0;  // since the last progress
  bool is_stopped_ = false;
};

// Downloads a small document into memory.
Result<std::string> get_text(const std::function<Request()>& make_request, std::uint64_t limit, const StopToken& stop,
                             Response* response = nullptr, int attempts = Retry::kAttempts);

// The error for a response that is not a success: the status, the server's own message and, for 401 and 403, `hint`.
Error response_error(const Response& response, std::string_view hint);

}  // namespace ballast::remote
