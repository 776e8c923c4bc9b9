#include "scheme/compressed_tensors/match.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/layer.h"

namespace ballast {
namespace {

// What the config says of modules with such codes.
struct Kind {
  std::string_view format;
  std::string_view other;  // name of the same format
  bool is_float;
  unsigned bits;  // 0: any
};

constexpr std::array<Kind, 6> kKinds{{
    {.format = "pack-quantized", .other = {}, .is_float = false, .bits = 0},
    {.format = "int-quantized", .other = "naive-quantized", .is_float = false, .bits = 0},
    {.format = "float-quantized", .other = "naive-quantized", .is_float = true, .bits = 8},
    {.format = "nvfp4-pack-quantized", .other = {}, .is_float = true, .bits = 4},
    {.format = "mxfp4-pack-quantized", .other = {}, .is_float = true, .bits = 4},
    {.format = "mxfp8-quantized", .other = "naive-quantized", .is_float = true, .bits = 8},
}};

const Kind& info(CtCodes kind) { return kKinds[static_cast<std::size_t>(kind)]; }

// Compares a module with one group of the config.
class Matcher {
 public:
  Matcher(const Model& model, const CtModule& module, const CtConfig& config, const CtGroup& group)
      : model_(model), module_(module), config_(config), group_(group), weights_(*group.weights) {}

  Result<CtLayout> run() {
    TRY(check_kind());
    TRY(set_blocks());
    TRY(check_scale(*module_.scale));
    layout_.bits = weights_.bits;
    if (module_.zeros != nullptr && weights_.is_symmetric)
      return disagree(*module_.zeros, "has zero points", "symmetric is true");
    if (module_.zeros == nullptr && !weights_.is_symmetric) {
      return disagree(*module_.codes, "has no weight_zero_point", "symmetric is false");
    }
    if (module_.kind == CtCodes::kPacked) {
      TRY(choose_words());
    } else if (module_.zeros != nullptr) {
      if (module_.kind != CtCodes::kI8) {
        return fail_tensor(model_, *module_.zeros, Errc::kUnsupported, "zero points of {} are not supported",
                           format_name(module_.kind));
      }
      TRY(check_dtype(model_, *module_.zeros, {DType::kI8}));
      TRY(check_scale(*module_.zeros));
    }
    return layout_;
  }

 private:
  std::unexpected<Error> disagree(const TensorInfo& tensor, std::string_view found, std::string_view declared) const {
    return fail_tensor(model_, tensor, Errc::kCorrupt, "{}, but {}: {}", found, group_.place, declared);
  }

  Result<void> check_kind() const {
    const Kind& kind = info(module_.kind);
    const TensorInfo& codes = *module_.codes;
    const std::string stored = fmt::format("is {} of {}", name(codes.dtype), kind.format);
    if (!group_.format.empty() && group_.format != kind.format && group_.format != kind.other) {
      return disagree(codes, stored, fmt::format("format is {}", quote(group_.format)));
    }
    if (weights_.is_float != kind.is_float) {
      return disagree(codes, stored, fmt::format("type is '{}'", weights_.is_float ? "float" : "int"));
    }
    if (kind.bits != 0 && weights_.bits != kind.bits) {
      return disagree(codes, stored, fmt::format("num_bits is {}, expected {}", weights_.bits, kind.bits));
    }
    return {};
  }

  Result<void> set_blocks() {
    layout_.group_rows = 1;
    layout_.group_columns = module_.columns();
    switch (weights_.strategy) {
      case CtStrategy::kChannel: break;
      case CtStrategy::kTensor:
        layout_.group_rows = module_.rows();
        layout_.is_shared = module_.scale->elements() == 1;
        break;
      case CtStrategy::kBlock:
        layout_.group_rows = weights_.block_rows;
        layout_.group_columns = weights_.block_columns;
        break;
      case CtStrategy::kGroup:
        layout_.group_columns = weights_.group_size;
        if (module_.columns() % weights_.group_size == 0) break;
        return fail_tensor(
            model_, *module_.codes, Errc::kUnsupported,
            "{} columns are not a multiple of {}, the group_size in {}; compressed-tensors does not read such weights",
            module_.columns(), weights_.group_size, group_.place);
    }
    return {};
  }

  // Also for zero points that are not packed.
  Result<void> check_scale(const TensorInfo& tensor) const {
    std::vector<std::uint64_t> expected(module_.shape.begin(), module_.shape.end() - 2);
    if (weights_.strategy == CtStrategy::kTensor) {
      if (tensor.elements() == (layout_.is_shared ? 1 : module_.matrices())) return {};
      expected = {1};
    } else {
      expected.push_back(ceil_div(module_.rows(), layout_.group_rows));
      expected.push_back(groups());
    }
    return check_shape(model_, tensor, expected, fmt::format("{} of a weight {}", settings(), to_string(module_.shape)));
  }

  std::uint64_t groups() const { return ceil_div(module_.columns(), layout_.group_columns); }

  // "config.json: quantization_config: config_groups: group_0: group_size 32"
  std::string settings() const {
    switch (weights_.strategy) {
      case CtStrategy::kTensor: return group_.place + ": strategy 'tensor'";
      case CtStrategy::kChannel: return group_.place + ": strategy 'channel'";
      case CtStrategy::kGroup: return fmt::format("{}: group_size {}", group_.place, weights_.group_size);
      case CtStrategy::kBlock:
        return fmt::format("{}: block_structure {} x {}", group_.place, weights_.block_rows, weights_.block_columns);
    }
    return group_.place;
  }

  static std::uint64_t words(std::uint64_t codes, unsigned bits, unsigned per_word) {
    return per_word == 0 ? ceil_div(codes * bits, 32) : ceil_div(codes, per_word);
  }

  std::vector<std::uint64_t> zeros_shape(unsigned per_word) const {
    std::vector<std::uint64_t> shape(module_.shape.begin(), module_.shape.end() - 2);
    shape.insert(shape.end(), {words(module_.rows(), weights_.bits, per_word), groups()});
    return shape;
  }

  // Older versions do not let a code cross words. The widths of the tensors tell, unless the weight is tiny.
  Result<void> choose_words() {
    const unsigned bits = weights_.bits;
    const TensorInfo& codes = *module_.codes;
    const std::uint64_t width = codes.shape.back();
    std::vector<unsigned> fitting;
    for (const unsigned per_word : {0U, 32 / bits}) {
      if (32 % bits == 0 && per_word != 0) continue;
      if (words(module_.columns(), bits, per_word) == width) fitting.push_back(per_word);
    }
    if (fitting.empty()) {
      std::vector<std::uint64_t> expected = module_.shape;
      expected.back() = words(module_.columns(), bits, 0);
      return check_shape(model_, codes, expected,
                         fmt::format("{}: num_bits {} of a weight {}", group_.place, bits, to_string(module_.shape)));
    }
    if (module_.zeros != nullptr) TRY(check_zeros(fitting));
    const bool is_one_word = width == 1 && (module_.zeros == nullptr || words(module_.rows(), bits, 32 / bits) == 1);
    if (fitting.size() > 1 && !is_one_word) {
      if (!config_.has_padded) {
        return fail_tensor(model_, codes, Errc::kUnsupported,
                           "rows of {} columns with {} bits take {} words with and without padding, and {} has no version",
                           module_.columns(), bits, width, config_.place);
      }
      layout_.per_word = fitting[*config_.has_padded ? 1 : 0];
      return {};
    }
    layout_.per_word = fitting.front();
    return {};
  }

  // Leaves the layouts that the packed zero points have, too.
  Result<void> check_zeros(std::vector<unsigned>& fitting) const {
    const TensorInfo& zeros = *module_.zeros;
    if (weights_.strategy != CtStrategy::kGroup && weights_.strategy != CtStrategy::kChannel) {
      return fail_tensor(model_, zeros, Errc::kUnsupported, "packed zero points are for strategy 'group' and 'channel': {}",
                         settings());
    }
    TRY(check_dtype(model_, zeros, {DType::kI32}));
    const std::vector<std::uint64_t> expected = zeros_shape(fitting.front());
    std::erase_if(fitting, [&](unsigned per_word) { return !std::ranges::equal(zeros.shape, zeros_shape(per_word)); });
    if (!fitting.empty()) return {};
    return check_shape(model_, zeros, expected,
                       fmt::format("{}: num_bits {} of a weight {}", group_.place, weights_.bits, to_string(module_.shape)));
  }

  const Model& model_;
  const CtModule& module_;
  const CtConfig& config_;
  const CtGroup& group_;
  const CtWeights& weights_;
  CtLayout layout_;
};

}  // namespace

std::string_view format_name(CtCodes kind) { return info(kind).format; }

Result<CtLayout> match_module(const Model& model, const CtModule& module, const CtConfig& config) {
  const TensorInfo& codes = *module.codes;
  if (config.ignored.has(module.name) || config.ignored.matches(module.name)) {
    return fail_tensor(model, codes, Errc::kCorrupt, "is quantized, but {}: ignore contains {}", config.place,
                       quote(module.name));
  }
  std::optional<CtLayout> found;
  std::optional<Error> first;
  for (const CtGroup* const group : config.groups_of(module.name)) {
    if (!group->weights) continue;
    auto layout = Matcher(model, module, config, *group).run();
    if (!layout) {
      if (!first) first = std::move(layout.error());
      continue;
    }
    if (found && *found != *layout) {
      return fail_tensor(model, codes, Errc::kUnsupported,
                         "{}: config_groups has groups of {} and of {} bits that fit it; name {} in "
                         "the targets of one",
                         config.place, found->bits, layout->bits, quote(module.name));
    }
    found = *layout;
  }
  if (found) return *found;
  if (first) return std::unexpected(*std::move(first));
  return fail_tensor(model, codes, Errc::kCorrupt, "is quantized, but {}: config_groups has no group of weights for {}",
                     config.place, quote(module.name));
}

}  // namespace ballast
