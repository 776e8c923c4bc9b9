#include "scheme/compressed_tensors/module.h"

#include <algorithm>
#include <span>

#include "base/checked.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/layer.h"

namespace ballast {
namespace {

class ModuleFinder {
 public:
  ModuleFinder(const Model& model, const TensorInfo& codes)
      : model_(model),
        is_packed_(has_leaf(codes.name, kCtPacked)),
        prefix_(codes.name.substr(0, codes.name.size() - (is_packed_ ? kCtPacked : kCtWeight).size())) {
    module_.name = prefix_.empty() ? "" : prefix_.substr(0, prefix_.size() - 1);
    module_.codes = &codes;
  }

  Result<CtModule> run() {
    const TensorInfo& codes = *module_.codes;
    if (codes.shape.size() != 2 && codes.shape.size() != 3) {
      return fail_tensor(model_, codes, Errc::kUnsupported, "shape is {}, expected a matrix or a stack of matrices",
                         to_string(codes.shape));
    }
    if (codes.elements() == 0) return fail_tensor(model_, codes, Errc::kCorrupt, "has scales, but is empty");
    module_.scale = TRY(need("weight_scale"));
    module_.zeros = find("weight_zero_point");
    module_.group_index = find("weight_g_idx");
    if (is_packed_) {
      TRY(check_dtype(model_, codes, {DType::kI32, DType::kU8}));
      TRY(codes.dtype == DType::kI32 ? read_packed() : read_nibbles());
    } else {
      TRY(check_dtype(model_, codes, {DType::kI8, DType::kF8E4M3}));
      module_.shape.assign(codes.shape.begin(), codes.shape.end());
      const bool has_exponents = is_exponents(module_.scale->dtype);
      module_.kind = codes.dtype == DType::kI8 ? CtCodes::kI8 : has_exponents ? CtCodes::kMxfp8 : CtCodes::kF8;
    }
    TRY(check_parameters());
    return std::move(module_);
  }

 private:
  static bool is_exponents(DType dtype) { return dtype == DType::kU8 || dtype == DType::kF8E8M0; }

  const TensorInfo* find(std::string_view leaf) const { return model_.find(prefix_ + std::string(leaf)); }

  Result<const TensorInfo*> need(std::string_view leaf) const {
    if (const TensorInfo* const found = find(leaf)) return found;
    return fail_tensor(model_, *module_.codes, Errc::kCorrupt, "{} is missing", quote(prefix_ + std::string(leaf)));
  }

  // I32 words. The number of columns is not a multiple of those in a word in general, so that a tensor holds the shape.
  Result<void> read_packed() {
    const TensorInfo& codes = *module_.codes;
    module_.kind = CtCodes::kPacked;
    const TensorInfo& tensor = *(module_.shape_tensor = TRY(need("weight_shape")));
    TRY(check_dtype(model_, tensor, {DType::kI64}));
    TRY(check_shape(model_, tensor, {codes.shape.size()}, fmt::format("{} is {}", quote(codes.name), to_string(codes.shape))));
    std::vector<std::int64_t> stored(codes.shape.size());
    TRY(model_.read_into(tensor.name, 0, std::as_writable_bytes(std::span(stored))));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(stored[i], 0));
      const bool is_last = i + 1 == stored.size();
      // Each code takes at least a bit.
      const bool fits = is_last ? ceil_div(size, 32) <= codes.shape[i] && size > 0 : size == codes.shape[i];
      if (!fits) {
        return fail_tensor(model_, tensor, Errc::kCorrupt, "dimension {} is {}, but {} is {}", i, stored[i], quote(codes.name),
                           to_string(codes.shape));
      }
      module_.shape.push_back(size);
    }
    return {};
  }

  // Two E2M1 codes in a byte.
  Result<void> read_nibbles() {
    const TensorInfo& codes = *module_.codes;
    module_.kind = is_exponents(module_.scale->dtype) ? CtCodes::kMxfp4 : CtCodes::kNvfp4;
    module_.shape.assign(codes.shape.begin(), codes.shape.end());
    module_.shape.back() *= 2;
    return {};
  }

  Result<void> check_parameters() {
    const TensorInfo& scale = *module_.scale;
    switch (module_.kind) {
      case CtCodes::kPacked:
      case CtCodes::kI8:
      case CtCodes::kF8: TRY(check_dtype(model_, scale, {DType::kF32, DType::kBF16, DType::kF16})); break;
      case CtCodes::kMxfp4:
      case CtCodes::kMxfp8: break;
      case CtCodes::kNvfp4: {
        TRY(check_dtype(model_, scale, {DType::kF8E4M3}));
        const TensorInfo& divisor = *(module_.divisor = TRY(need("weight_global_scale")));
        TRY(check_dtype(model_, divisor, {DType::kF32}));
        if (divisor.elements() == 1 || divisor.elements() == module_.matrices()) break;
        return fail_tensor(model_, divisor, Errc::kCorrupt, "shape is {}, expected [1]", to_string(divisor.shape));
      }
    }
    if (module_.group_index == nullptr) return {};
    TRY(check_dtype(model_, *module_.group_index, {DType::kI32}));
    return check_shape(model_, *module_.group_index, {module_.columns()}, "one for each column");
  }

  const Model& model_;
  bool is_packed_;
  std::string prefix_;  // of all tensors of the module
  CtModule module_;
};

}  // namespace

bool has_leaf(std::string_view name, std::string_view leaf) {
  if (!name.ends_with(leaf)) return false;
  return name.size() == leaf.size() || name[name.size() - leaf.size() - 1] == '.';
}

Result<CtModule> find_module(const Model& model, const TensorInfo& codes) { return ModuleFinder(model, codes).run(); }

}  // namespace ballast
