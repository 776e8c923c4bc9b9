#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ballast {

// Walks over the tokens of a JSON text that is known to be valid, and tells where they lie, for edits that leave all else as it
// is.
class JsonWalk {
 public:
  enum class Kind { kKey, kString, kScalar, kOpen, kClose };
  struct Token {
    Kind kind;
    std::size_t begin;  // the bytes of the token, quotes included
    std::size_t end;
  };

  explicit JsonWalk(std::string_view text) : text_(text) {}

  // False at the end.
  bool next(Token& token);

  // How many objects and arrays are open: 1 for the members of the root.
  std::size_t depth() const { return levels_.size(); }
  // The key, as it is spelt, that the last token is or belongs to; empty in an array.
  std::string_view key() const { return levels_.empty() ? std::string_view() : levels_.back().key; }
  // The keys of the objects around the last token, from the root's members on; empty for arrays.
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
