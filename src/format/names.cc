#include "format/names.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"

namespace ballast {

Result<void> check_names(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  std::vector<std::string_view> names;
  for (const TensorSpec& tensor : tensors) {
    if (!is_utf8(tensor.name)) return fail(Errc::kInvalidArgument, "tensor {}: the name is not valid UTF-8", quote(tensor.name));
    names.emplace_back(tensor.name);
  }
  std::ranges::sort(names);
  if (const auto duplicate = std::ranges::adjacent_find(names); duplicate != names.end()) {
    return fail(Errc::kInvalidArgument, "duplicate tensor name {}", quote(*duplicate));
  }
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value)) return fail(Errc::kInvalidArgument, "metadata {}: not valid UTF-8", quote(key));
  }
  return {};
}

}  // namespace ballast
