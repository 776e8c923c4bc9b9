#include "base/regex.h"

#include <re2/re2.h>

#include "base/fail.h"
#include "base/text.h"

namespace ballast {

Regex::Regex(std::unique_ptr<re2::RE2> regex) : regex_(std::move(regex)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  constexpr std::int64_t kMostMemory = std::int64_t{1} << 20;
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMostMemory);
  auto regex = std::make_unique<re2::RE2>(pattern, options);
  if (!regex->ok()) {
    return fail(Errc::kInvalidArgument, "{} is not a valid regular expression: {}", quote(pattern), escape(regex->error()));
  }
  return Regex(std::move(regex));
}

bool Regex::found_in(std::string_view text) const { return re2::RE2::PartialMatch(text, *regex_); }

}  // namespace ballast
