#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/layer.h"
#include "scheme/layer_reader.h"
#include "scheme/mxfp4/decode.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "mxfp4";

// transformers' dense weight is the transpose of what is stored; OpenAI's is not.
struct Naming {
  std::string_view blocks;
  std::string_view scales;
  bool is_transposed;
};
constexpr std::array kNamings{
    Naming{.blocks = "_blocks", .scales = "_scales", .is_transposed = true},
    Naming{.blocks = ".blocks", .scales = ".scales", .is_transposed = false},
};

bool has_suffix(const TensorInfo& tensor, std::string_view suffix) {
  return tensor.dtype == DType::kU8 && tensor.name.size() > suffix.size() && tensor.name.ends_with(suffix);
}

class Mxfp4Finder {
 public:
  explicit Mxfp4Finder(const Model& model) : model_(model), dtype_(config_dtype(model).value_or(DType::kBF16)) {}

  Result<Layers> run() {
    for (const Naming& naming : kNamings) {
      for (const TensorInfo& tensor : model_.tensors()) {
        if (has_suffix(tensor, naming.blocks)) TRY(add(tensor, naming));
        if (has_suffix(tensor, naming.scales)) TRY(partner(tensor, naming.scales, naming.blocks));
      }
    }
    return std::move(found_);
  }

 private:
  Result<const TensorInfo*> partner(const TensorInfo& tensor, std::string_view suffix, std::string_view other) const {
    const TensorInfo* const found = find_sibling(model_, tensor.name, suffix, other);
    if (found != nullptr) return found;
    const std::string_view base = tensor.name.substr(0, tensor.name.size() - suffix.size());
    return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(std::string(base).append(other)));
  }

  Result<void> add(const TensorInfo& blocks, const Naming& naming) {
    const TensorInfo& scales = *TRY(partner(blocks, naming.blocks, naming.scales));
    TRY(check_dtype(model_, scales, {DType::kU8, DType::kF8E8M0}));
    if (blocks.shape.size() != 4 || blocks.shape.back() != Mxfp4Experts::kGroupBytes) {
      return fail_tensor(model_, blocks, Errc::kCorrupt, "shape is {}, expected [experts, rows, groups, {}]",
                         to_string(blocks.shape), Mxfp4Experts::kGroupBytes);
    }
    if (blocks.elements() == 0)
      return fail_tensor(model_, blocks, Errc::kCorrupt, "is empty: shape is {}", to_string(blocks.shape));
    TRY(check_shape(model_, scales, {blocks.shape.begin(), blocks.shape.end() - 1},
                    fmt::format("{} is {}", quote(blocks.name), to_string(blocks.shape))));
    const Mxfp4Experts experts{
        .blocks = &blocks, .scales = &scales, .experts = blocks.shape[0], .rows = blocks.shape[1], .groups = blocks.shape[2]};
    Layer layer;
    layer.name = blocks.name.substr(0, blocks.name.size() - naming.blocks.size());
    layer.dtype = dtype_;
    layer.shape = {experts.experts, experts.rows, experts.columns()};
    if (naming.is_transposed) std::swap(layer.shape[1], layer.shape[2]);
    layer.rows = layer.shape[0] * layer.shape[1];
    layer.storage.bits = 4;
    layer.storage.group_size = Mxfp4Experts::kGroupSize;
    layer.parts = {&blocks, &scales};
    layer.decoder = naming.is_transposed ? decode_transposed_experts(experts) : decode_experts(experts);
    found_.layers.push_back(std::move(layer));
    return {};
  }

  const Model& model_;
  DType dtype_;
  Layers found_;
};

// Experts that the config declares as quantized must not be dense.
Result<void> check_declared(const Model& model, const Declared& declared, bool has_layers) {
  constexpr std::array<std::string_view, 2> kExperts{".experts.gate_up_proj", ".experts.down_proj"};
  const Section section = TRY(Section::parse(declared));
  const auto left_out = TRY(section.texts("modules_to_not_convert"));
  for (const TensorInfo& tensor : model.tensors()) {
    if (std::ranges::none_of(kExperts, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); })) continue;
    const auto is_named = [&](std::string_view module) { return !module.empty() && tensor.name.contains(module); };
    if (std::ranges::any_of(left_out, is_named)) continue;
    return fail_tensor(model, tensor, Errc::kCorrupt,
                       "dtype is {}, but {} says '{}': expected {}; remove the section if the weights are not quantized",
                       name(tensor.dtype), declared.place, escape(declared.method), quote(std::string(tensor.name) + "_blocks"));
  }
  if (has_layers) return {};
  return fail(Errc::kCorrupt,
              "{}: {} says '{}', but no tensor is named *_blocks; remove the section if the weights are not quantized",
              escape(model.path()), declared.place, escape(declared.method));
}

// Experts of gpt-oss in MXFP4, with the names of transformers or of OpenAI.
class Mxfp4Scheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    const bool is_declared = !declared.empty() && declared.front().method == kName;
    if (!declared.empty() && !is_declared) return std::nullopt;
    const auto is_pair = [&](const TensorInfo& tensor) {
      return std::ranges::any_of(kNamings, [&](const Naming& naming) {
        return has_suffix(tensor, naming.blocks) && find_sibling(model, tensor.name, naming.blocks, naming.scales) != nullptr;
      });
    };
    const bool has_layers = std::ranges::any_of(model.tensors(), is_pair);
    if (is_declared) TRY(check_declared(model, declared.front(), has_layers));
    if (!has_layers) return std::nullopt;
    return TRY(Mxfp4Finder(model).run());
  }
};

}  // namespace

const LayerScheme& mxfp4_scheme() {
  static const Mxfp4Scheme scheme;
  return scheme;
}

}  // namespace ballast
