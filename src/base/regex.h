#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <ballast/error.h>

namespace re2 {
class RE2;
}

namespace ballast {

// A regular expression in RE2 syntax. Matching takes time linear in the length of the text, whatever the pattern.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Whether any part of `text` matches.
  bool found_in(std::string_view text) const;

 private:
  explicit Regex(std::unique_ptr<re2::RE2> regex);
  std::unique_ptr<re2::RE2> regex_;
};

}  // namespace ballast
