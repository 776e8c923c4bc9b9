#include "scheme/packed_tensors.h"

#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::string_view kCodes = ".qweight";
constexpr std::string_view kZeros = ".qzeros";
constexpr std::string_view kScales = ".scales";

// The tensor that has `other` in place of `suffix`.
Result<const TensorInfo*> sibling(const Model& model, const TensorInfo& tensor, std::string_view suffix, std::string_view other) {
  if (const TensorInfo* const found = find_sibling(model, tensor.name, suffix, other)) return found;
  const std::string_view module = tensor.name.substr(0, tensor.name.size() - suffix.size());
  return fail_tensor(model, tensor, Errc::kCorrupt, "{} is missing", quote(std::string(module).append(other)));
}

Result<PackedTensors> tensors_of(const Model& model, const TensorInfo& codes) {
  PackedTensors tensors{.module = std::string(codes.name.substr(0, codes.name.size() - kCodes.size())),
                        .codes = &codes,
                        .zeros = TRY(sibling(model, codes, kCodes, kZeros)),
                        .scales = TRY(sibling(model, codes, kCodes, kScales))};
  TRY(check_dtype(model, codes, {DType::kI32}));
  TRY(check_dtype(model, *tensors.zeros, {DType::kI32}));
  TRY(check_dtype(model, *tensors.scales, {DType::kF16, DType::kBF16, DType::kF32}));
  for (const TensorInfo* const tensor : {&codes, tensors.zeros, tensors.scales}) {
    if (tensor->shape.size() == 2 && tensor->elements() > 0) continue;
    return fail_tensor(model, *tensor, Errc::kCorrupt, "shape is {}, expected a matrix that is not empty",
                       to_string(tensor->shape));
  }
  return tensors;
}

}  // namespace

Result<std::vector<PackedTensors>> find_packed(const Model& model, const Declared& declared) {
  std::vector<PackedTensors> found;
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name.ends_with(kCodes)) found.push_back(TRY(tensors_of(model, tensor)));
    if (tensor.name.ends_with(kZeros)) TRY(sibling(model, tensor, kZeros, kCodes));
  }
  if (!found.empty()) return found;
  return fail(Errc::kCorrupt,
              "{}: {} says '{}', but no tensor is named *.qweight; remove the section if the weights are not quantized",
              escape(model.path()), declared.place, escape(declared.method));
}

Layer packed_layer(const Model& model, const PackedTensors& tensors, std::uint64_t columns, Storage storage) {
  const std::uint64_t rows = tensors.scales->shape[1];
  return {.name = tensors.module + ".weight",
          .dtype = config_dtype(model).value_or(tensors.scales->dtype),
          .shape = {rows, columns},
          .rows = rows,
          .storage = std::move(storage),
          .parts = {tensors.codes, tensors.zeros, tensors.scales},
          .decoder = nullptr};
}

}  // namespace ballast
