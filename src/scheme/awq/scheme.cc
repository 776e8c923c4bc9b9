#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/auto_round.h"
#include "scheme/awq/codes.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer_reader.h"
#include "scheme/packed_config.h"
#include "scheme/transposed.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "awq";
constexpr std::string_view kVersion = "gemm";
constexpr std::string_view kCodes = ".qweight";
constexpr unsigned kBits = 4;

// The other versions have the same tensor names, but other orders.
Result<void> check_version(const PackedConfig& config) {
  constexpr std::array<std::string_view, 3> kKeys{"version", "checkpoint_format", "format"};
  constexpr std::array<std::string_view, 1> kBackend{"backend"};
  constexpr std::string_view kOldBackend = "llm-awq";
  const std::string version = TRY(config.text(kKeys)).value_or(std::string(kVersion));
  const bool is_old = TRY(config.text(kBackend)) == kOldBackend;
  if (version == kVersion && !is_old) return {};
  return fail(Errc::kUnsupported, "{}: {} is '{}', which Ballast cannot decode; it decodes version gemm",
              config.section().place(), is_old ? "backend" : "version", is_old ? std::string(kOldBackend) : escape(version));
}

class AwqFinder {
 public:
  AwqFinder(const Model& model, const PackedConfig& config) : model_(model), config_(config) {}

  Result<Layers> run() {
    for (const TensorInfo& tensor : model_.tensors()) {
      constexpr std::string_view kZeros = ".qzeros";
      if (tensor.name.ends_with(kCodes)) TRY(add(tensor));
      if (!tensor.name.ends_with(kZeros) || find_sibling(model_, tensor.name, kZeros, kCodes) != nullptr) continue;
      const std::string_view module = tensor.name.substr(0, tensor.name.size() - kZeros.size());
      return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(std::string(module).append(kCodes)));
    }
    return std::move(found_);
  }

 private:
  Result<const TensorInfo*> sibling(const TensorInfo& codes, std::string_view other) const {
    if (const TensorInfo* const found = find_sibling(model_, codes.name, kCodes, other)) return found;
    const std::string_view module = codes.name.substr(0, codes.name.size() - kCodes.size());
    return fail_tensor(model_, codes, Errc::kCorrupt, "{} is missing", quote(std::string(module).append(other)));
  }

  // Checks the sizes against each other, then against the config. Returns the group size.
  Result<std::uint64_t> check_sizes(const TensorInfo& codes, const TensorInfo& zeros, const TensorInfo& scales,
                                    const PackedSettings& declared) const {
    TRY(check_dtype(model_, codes, {DType::kI32}));
    TRY(check_dtype(model_, zeros, {DType::kI32}));
    TRY(check_dtype(model_, scales, {DType::kF16, DType::kBF16, DType::kF32}));
    for (const TensorInfo* const tensor : {&codes, &zeros, &scales}) {
      if (tensor->shape.size() == 2 && tensor->elements() > 0) continue;
      return fail_tensor(model_, *tensor, Errc::kCorrupt, "shape is {}, expected a matrix that is not empty",
                         to_string(tensor->shape));
    }
    if (declared.bits && *declared.bits != kBits) {
      return fail(Errc::kUnsupported, "{}: bits is {} for {}; Ballast decodes 4", config_.section().place(), *declared.bits,
                  quote(codes.name));
    }
    const std::uint64_t columns = codes.shape[0];
    const std::uint64_t rows = codes.shape[1] * 32 / kBits;
    const std::string why = fmt::format("{} is {}", quote(codes.name), to_string(codes.shape));
    TRY(check_shape(model_, scales, {scales.shape[0], rows}, why));
    TRY(check_shape(model_, zeros, {scales.shape[0], codes.shape[1]},
                    fmt::format("{} is {}", quote(scales.name), to_string(scales.shape))));
    const std::uint64_t groups = scales.shape[0];
    const std::uint64_t guess = columns % groups == 0 ? columns / groups : 0;
    const std::uint64_t size = declared.group_size.value_or(guess) == 0 ? columns : declared.group_size.value_or(guess);
    if (columns % size != 0) {
      return fail_tensor(model_, codes, Errc::kCorrupt, "has {} rows, expected a multiple of group_size {}", columns, size);
    }
    TRY(check_shape(model_, scales, {columns / size, rows}, fmt::format("{} columns in groups of {}", columns, size)));
    return size;
  }

  Result<void> add(const TensorInfo& codes) {
    const TensorInfo& zeros = *TRY(sibling(codes, ".qzeros"));
    const TensorInfo& scales = *TRY(sibling(codes, ".scales"));
    const std::string module(codes.name.substr(0, codes.name.size() - kCodes.size()));
    const std::uint64_t group_size = TRY(check_sizes(codes, zeros, scales, config_.of(module)));
    const std::uint64_t rows = scales.shape[1];
    const std::uint64_t columns = codes.shape[0];
    const Storage storage{
        .scheme = {}, .mode = std::string(kVersion), .bits = kBits, .group_size = static_cast<unsigned>(group_size)};
    Layer layer{.name = module + ".weight",
                .dtype = config_dtype(model_).value_or(scales.dtype),
                .shape = {rows, columns},
                .rows = rows,
                .storage = storage,
                .parts = {&codes, &zeros, &scales},
                .decoder = nullptr};
    layer.decoder = grouped_decoder({.columns = columns,
                                     .group_size = group_size,
                                     .codes = awq_codes(codes),
                                     .scales = transposed_scales(scales),
                                     .zeros = awq_zeros(zeros)});
    found_.layers.push_back(std::move(layer));
    return {};
  }

  const Model& model_;
  const PackedConfig& config_;
  Layers found_;
};

// Codes with scales and zero points, packed along the rows: of AutoAWQ, GPTQModel and AutoRound. A lone *.scales divides an
// activation and is not part of a weight.
class AwqScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    if (declared.empty()) return std::nullopt;
    const std::string& method = declared.front().method;
    if (is_auto_round(method)) {
      const Section section = TRY(Section::parse(declared.front()));
      if (TRY(auto_round_packing(section)) != AutoRoundPacking::kAwq) return std::nullopt;
      TRY(refuse_rotation(section));
    } else if (method != kName) {
      return std::nullopt;
    }
    std::vector<Declared> own;
    std::ranges::copy_if(declared, std::back_inserter(own),
                         [&](const Declared& each) { return each.method == method || each.method == kName; });
    const PackedConfig config = TRY(PackedConfig::parse(model, own));
    TRY(check_version(config));
    auto found = TRY(AwqFinder(model, config).run());
    if (found.layers.empty()) {
      return fail(Errc::kCorrupt,
                  "{}: {} says '{}', but no tensor is named *.qweight; remove the section if the weights are not quantized",
                  escape(model.path()), declared.front().place, escape(method));
    }
    TRY(refuse_conv1d(model));
    return found;
  }
};

}  // namespace

const LayerScheme& awq_scheme() {
  static const AwqScheme scheme;
  return scheme;
}

}  // namespace ballast
