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
#include "scheme/packed_tensors.h"
#include "scheme/transposed.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "awq";
constexpr std::string_view kVersion = "gemm";
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

// Checks the sizes against each other, then against the config. Returns the group size.
Result<std::uint64_t> check_sizes(const Model& model, const PackedConfig& config, const PackedTensors& tensors) {
  const TensorInfo& codes = *tensors.codes;
  const TensorInfo& scales = *tensors.scales;
  const PackedSettings declared = config.of(tensors.module);
  if (declared.bits && *declared.bits != kBits) {
    return fail(Errc::kUnsupported, "{}: bits is {} for {}; Ballast decodes 4", config.section().place(), *declared.bits,
                quote(codes.name));
  }
  const std::uint64_t columns = codes.shape[0];
  const std::uint64_t rows = codes.shape[1] * 32 / kBits;
  const std::uint64_t groups = scales.shape[0];
  TRY(check_shape(model, scales, {groups, rows}, fmt::format("{} is {}", quote(codes.name), to_string(codes.shape))));
  TRY(check_shape(model, *tensors.zeros, {groups, codes.shape[1]},
                  fmt::format("{} is {}", quote(scales.name), to_string(scales.shape))));
  const std::uint64_t guess = columns % groups == 0 ? columns / groups : 0;
  const std::uint64_t size = declared.group_size.value_or(guess) == 0 ? columns : declared.group_size.value_or(guess);
  if (columns % size != 0) {
    return fail_tensor(model, codes, Errc::kCorrupt, "has {} rows, expected a multiple of group_size {}", columns, size);
  }
  TRY(check_shape(model, scales, {columns / size, rows}, fmt::format("{} columns in groups of {}", columns, size)));
  return size;
}

Result<Layer> make_layer(const Model& model, const PackedConfig& config, const PackedTensors& tensors) {
  const std::uint64_t group_size = TRY(check_sizes(model, config, tensors));
  const std::uint64_t columns = tensors.codes->shape[0];
  Layer layer =
      packed_layer(model, tensors, columns,
                   {.scheme = {}, .mode = std::string(kVersion), .bits = kBits, .group_size = static_cast<unsigned>(group_size)});
  layer.decoder = grouped_decoder({.columns = columns,
                                   .group_size = group_size,
                                   .codes = awq_codes(*tensors.codes),
                                   .scales = transposed_scales(*tensors.scales),
                                   .zeros = awq_zeros(*tensors.zeros)});
  return layer;
}

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
    Layers found;
    for (const PackedTensors& tensors : TRY(find_packed(model, declared.front()))) {
      found.layers.push_back(TRY(make_layer(model, config, tensors)));
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
