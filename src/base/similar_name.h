#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast {

// The known name most similar to one that was not found. Known names are offered one by one; the first of the most similar ones
// wins. A name that differs only by a prefix that ends with a dot is more similar than any other.
class SimilarName {
 public:
  // At most `most_edits` bytes are inserted, removed or changed.
  SimilarName(std::string_view name, std::size_t most_edits) : name_(name), most_edits_(most_edits) {}
  explicit SimilarName(std::string_view name) : SimilarName(name, name.size() / 3) {}

  void offer(std::string_view known);

  std::string_view best() const { return best_; }  // empty if no name is similar

 private:
  std::string_view name_;
  std::size_t most_edits_;  // for the next name to be better
  bool is_settled_ = false;
  std::string best_;
};

// "; did you mean 'model.norm.weight'?", or nothing. Each of `known` has a `name`.
std::string did_you_mean(const SimilarName& similar);
template <class Range>
std::string did_you_mean(std::string_view name, const Range& known) {
  SimilarName similar(name);
  for (const auto& each : known) similar.offer(each.name);
  return did_you_mean(similar);
}

}  // namespace ballast
