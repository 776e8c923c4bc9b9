#include "scheme/layer.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace ballast {

Result<void> check_dtype(const Model& model, const TensorInfo& tensor, std::initializer_list<DType> expected) {
  if (std::ranges::find(expected, tensor.dtype) != expected.end()) return {};
  std::vector<std::string_view> names;
  for (const DType dtype : expected) names.push_back(name(dtype));
  return fail_tensor(model, tensor, Errc::kCorrupt, "dtype is {}, expected {}", name(tensor.dtype), fmt::join(names, " or "));
}

Result<void> check_shape(const Model& model, const TensorInfo& tensor, const std::vector<std::uint64_t>& expected,
                         const std::string& why) {
  if (std::ranges::equal(tensor.shape, expected)) return {};
  return fail_tensor(model, tensor, Errc::kCorrupt, "shape is {}, expected {}: {}", to_string(tensor.shape), to_string(expected),
                     why);
}

const TensorInfo* find_sibling(const Model& model, std::string_view name, std::string_view suffix, std::string_view other) {
  if (!name.ends_with(suffix)) return nullptr;
  return model.find(std::string(name.substr(0, name.size() - suffix.size())).append(other));
}

}  // namespace ballast
