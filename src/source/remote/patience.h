#pragma once

#include <functional>

#include <ballast/error.h>

#include "source/remote/http.h"

namespace ballast::remote {

// Tries again what may pass: broken connections, and answers by which a server says that it is busy. Gives up after a number of
// tries by which next to nothing came.
class Patience {
 public:
  // What comes before a connection breaks is progress only for those who go on behind it.
  enum class Partial { kKept, kLost };
  Patience(Partial partial, const StopToken& stop, int tries = kTries) : partial_(partial), stop_(stop), tries_(tries) {}

  static constexpr int kTries = 5;

  // The first answer that is final, success or not.
  Result<Answer> ask(const std::function<Request()>& make_request, const TakeBody& take);

  // Waits before another try; false if there have been enough.
  bool wait(std::optional<std::string_view> retry_after = {});

 private:
  Partial partial_;
  const StopToken& stop_;
  int tries_;
  int failures_ = 0;  // since something came that is worth the name
  bool is_stopped_ = false;
};

// The whole body of a small document.
Result<std::string> get_text(const std::function<Request()>& make_request, std::uint64_t limit, const StopToken& stop,
                             Answer* answer = nullptr, int tries = Patience::kTries);

// For an answer that is no success: what the server says, and `hint` where it refuses.
Error refusal(const Answer& answer, std::string_view hint);

}  // namespace ballast::remote
