#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <ballast/error.h>

namespace re2 {
class RE2;
}

namespace ballast {

// A regular expression in RE2's syntax: however it is written, matching takes time in proportion to the text.
class Regex {
 public:
  // Fails with kInvalidArgument and what is wrong with it.
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Whether it matches any part of `text`.
  bool found_in(std::string_view text) const;

 private:
  explicit Regex(std::unique_ptr<re2::RE2> regex);
  std::unique_ptr<re2::RE2> regex_;
};

}  // namespace ballast
