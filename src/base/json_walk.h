#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ballast {

// Iterates over the tokens of a JSON text that is known to be valid and returns their positions, for edits that leave the rest
// of the text unchanged.
class JsonWalk {
 public:
  enum class Kind { kKey, kString, kScalar, kOpen, kClose };
  struct Token {
    Kind kind;
    std::size_t begin;  // the bytes of the token, quotes included
    std::size_t end;
  };

  explicit JsonWalk(std::string_view text) : text_(text) {}

  // Returns false at the end of the text.
  bool next(Token& token);

  // The number of open objects and arrays: 1 for the members of the root.
  std::size_t depth() const { return levels_.size(); }
  // The last token if it is a key, or the key that it is the value of; not unescaped; empty in an array.
  std::string_view key() const { return levels_.empty() ? std::string_view() : levels_.back().key; }
  // The keys of the objects that enclose the last token, outermost first; an array has an empty key.
  std::vector<std::string_view> sections() const;

 private:
  struct Level {
    bool is_object;
    bool expects_key;
    std::string_view key;
  };
  std::size_t string_end(std::size_t at) const;

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Level> levels_;
};

}  // namespace ballast
