#include "base/similar_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"

namespace ballast {
namespace {

bool ends_with_part(std::string_view longer, std::string_view part) {
  return !part.empty() && longer.size() > part.size() && longer.ends_with(part) && longer[longer.size() - part.size() - 1] == '.';
}

// The number of bytes to insert, remove or change; `limit` + 1 stands for any larger number.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t prefix = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  a.remove_prefix(prefix);
  b.remove_prefix(prefix);
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
    if (std::ranges::min(row) > limit) return limit + 1;
  }
  return row.back();
}

}  // namespace

void SimilarName::offer(std::string_view known) {
  if (is_settled_ || known.empty()) return;
  if ((name_.contains('.') && ends_with_part(known, name_)) || ends_with_part(name_, known)) {
    best_ = known;
    is_settled_ = true;
    return;
  }
  const std::size_t edits = edit_distance(name_, known, most_edits_);
  if (edits == 0 || edits > most_edits_) return;
  best_ = known;
  most_edits_ = edits - 1;
}

std::string did_you_mean(const SimilarName& similar) {
  return similar.best().empty() ? std::string() : fmt::format("; did you mean {}?", quote(similar.best()));
}

}  // namespace ballast
