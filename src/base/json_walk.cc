#include "base/json_walk.h"

#include <algorithm>

namespace ballast {

std::size_t JsonWalk::string_end(std::size_t at) const {
  for (++at; at < text_.size() && text_[at] != '"'; ++at) at += text_[at] == '\\' ? 1 : 0;
  return std::min(at + 1, text_.size());
}

std::vector<std::string_view> JsonWalk::sections() const {
  std::vector<std::string_view> keys;
  for (std::size_t i = 0; i + 1 < levels_.size(); ++i) keys.push_back(levels_[i].key);
  return keys;
}

bool JsonWalk::next(Token& token) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (at_ == 0 && text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  constexpr std::string_view kBetween = " \t\r\n,:";
  for (; at_ < text_.size() && kBetween.find(text_[at_]) != std::string_view::npos; ++at_) {
    if (text_[at_] == ',' && !levels_.empty()) levels_.back().expects_key = levels_.back().is_object;
  }
  if (at_ >= text_.size()) return false;
  const std::size_t begin = at_;
  const char c = text_[begin];
  at_ = begin + 1;
  if (c == '{' || c == '[') {
    levels_.push_back({.is_object = c == '{', .expects_key = c == '{', .key = {}});
    token = {.kind = Kind::kOpen, .begin = begin, .end = at_};
  } else if (c == '}' || c == ']') {
    if (!levels_.empty()) levels_.pop_back();
    token = {.kind = Kind::kClose, .begin = begin, .end = at_};
  } else if (c == '"') {
    at_ = string_end(begin);
    const bool is_key = !levels_.empty() && levels_.back().expects_key;
    if (is_key) {
      levels_.back().key = text_.substr(begin + 1, at_ - begin - 2);
      levels_.back().expects_key = false;
    }
    token = {.kind = is_key ? Kind::kKey : Kind::kString, .begin = begin, .end = at_};
  } else {
    at_ = std::min(text_.find_first_of(" \t\r\n,:]}", begin), text_.size());
    token = {.kind = Kind::kScalar, .begin = begin, .end = at_};
  }
  return true;
}

}  // namespace ballast
