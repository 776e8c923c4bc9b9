#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/auto_round.h"
#include "scheme/gptq/codes.h"
#include "scheme/grouped_decoder.h"
#include "scheme/layer_reader.h"
#include "scheme/packed_config.h"
#include "scheme/packed_tensors.h"
#include "scheme/transposed.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "gptq";
constexpr std::string_view kCodes = ".qweight";

// What the config says of all layers.
struct Format {
  std::string_view name;  // gptq, gptq_v2 or gptq_p
  bool planes;
  GptqZeros zeros;
};
constexpr std::array kFormats{
    Format{.name = "gptq", .planes = false, .zeros = GptqZeros::kMinusOne},
    Format{.name = "gptq_v2", .planes = false, .zeros = GptqZeros::kSame},
    Format{.name = "gptq_p", .planes = true, .zeros = GptqZeros::kSame},
};

// "gptqmodel:0.9.1" and later: such files have zero points of 0, for which 1 is borrowed from the next code.
bool borrows(std::string_view quantizer) {
  constexpr std::string_view kProgram = "gptqmodel:";
  const std::string text = lowercase(quantizer);
  if (!text.starts_with(kProgram)) return false;
  const char* const end = text.data() + text.size();
  unsigned major = 0;
  unsigned minor = 0;
  const auto [dot, error] = std::from_chars(text.data() + kProgram.size(), end, major);
  if (error != std::errc()) return false;
  if (dot != end && *dot == '.') std::from_chars(dot + 1, end, minor);
  return major > 0 || minor >= 9;
}

// AutoRound borrows in the same way.
Result<bool> quantizer_borrows(const Section& section) {
  if (const auto provider = TRY(section.text("provider")); provider && is_auto_round(lowercase(*provider))) return true;
  const auto meta = TRY(section.section("meta"));
  if (!meta) return false;
  std::string_view text;
  if (meta->object()["quantizer"].get(text) == simdjson::SUCCESS) return borrows(text);
  return std::ranges::any_of(TRY(meta->texts("quantizer")), borrows);
}

Result<Format> format_of(const PackedConfig& config, std::string_view method) {
  constexpr std::array<std::string_view, 2> kKeys{"checkpoint_format", "format"};
  const Section& section = config.section();
  TRY(refuse_rotation(section));
  if (is_auto_round(method)) {
    const bool is_same = TRY(auto_round_packing(section)) == AutoRoundPacking::kGptqV2;
    return Format{
        .name = is_same ? "gptq_v2" : "gptq", .planes = false, .zeros = is_same ? GptqZeros::kSame : GptqZeros::kMinusOneInWords};
  }
  std::string name = TRY(config.text(kKeys)).value_or(std::string(method));
  if (TRY(config.flag("is_marlin_format")).value_or(false)) name = "marlin";
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  if (found == kFormats.end()) {
    return fail(Errc::kUnsupported,
                "{}: checkpoint_format is '{}', which Ballast cannot decode; it decodes gptq, gptq_v2 and gptq_p",
                section.place(), escape(name));
  }
  Format format = *found;
  if (format.zeros == GptqZeros::kMinusOne && TRY(quantizer_borrows(section))) format.zeros = GptqZeros::kMinusOneInWords;
  return format;
}

class GptqFinder {
 public:
  GptqFinder(const Model& model, const PackedConfig& config, const Format& format)
      : model_(model), config_(config), format_(format) {}

  Result<Layers> run(const Declared& declared) {
    is_symmetric_ = TRY(config_.flag("sym")).value_or(false);
    is_ordered_ = TRY(config_.flag("desc_act")).value_or(false);
    for (const PackedTensors& tensors : TRY(find_packed(model_, declared))) TRY(add(tensors));
    return std::move(found_);
  }

 private:
  // The config's bits, or those with which the tensors agree.
  Result<unsigned> bits_of(const PackedTensors& tensors, std::optional<unsigned> declared) const {
    const std::uint64_t rows = tensors.scales->shape[1];
    const std::uint64_t words = tensors.zeros->shape[1];
    const auto is_known = [&](std::uint64_t bits) {
      return bits == 2 || bits == 4 || bits == 8 || bits == 3 || (format_.planes && bits >= 5 && bits <= 7);
    };
    if (declared && !is_known(*declared)) {
      return fail(Errc::kUnsupported, "{}: bits is {} for {}; Ballast decodes 2, 3, 4 and 8, and up to 8 of gptq_p",
                  config_.section().place(), *declared, quote(tensors.codes->name));
    }
    if (declared) return *declared;
    if (words * 32 % rows != 0 || !is_known(words * 32 / rows)) {
      return fail_tensor(model_, *tensors.zeros, Errc::kCorrupt, "shape is {}, which fits no width of codes: {} is {}",
                         to_string(tensors.zeros->shape), quote(tensors.scales->name), to_string(tensors.scales->shape));
    }
    return static_cast<unsigned>(words * 32 / rows);
  }

  // The columns of the weight, after all shapes are known to agree.
  Result<std::uint64_t> columns_of(const PackedTensors& tensors, unsigned bits) const {
    const TensorInfo& codes = *tensors.codes;
    const std::uint64_t rows = tensors.scales->shape[1];
    const std::uint64_t groups = tensors.scales->shape[0];
    const bool is_even = 32 % bits == 0;  // words have whole codes
    const std::string why =
        fmt::format("{} is {} with {} bits", quote(tensors.scales->name), to_string(tensors.scales->shape), bits);
    TRY(check_shape(model_, codes, {codes.shape[0], rows}, why));
    const unsigned unit = is_even ? 32 / bits : 32;
    if (rows % unit != 0) {
      return fail_tensor(model_, codes, Errc::kCorrupt, "has {} columns, expected a multiple of {} with {} bits", rows, unit,
                         bits);
    }
    TRY(check_shape(model_, *tensors.zeros, {groups, rows * bits / 32}, why));
    if (!is_even && codes.shape[0] % bits != 0) {
      return fail_tensor(model_, codes, Errc::kCorrupt, "has {} rows, expected a multiple of {} with {} bits", codes.shape[0],
                         bits, bits);
    }
    const std::uint64_t columns = codes.shape[0] * 32 / bits;
    return columns;
  }

  // For every column its group; null: groups are consecutive columns.
  Result<const TensorInfo*> index_of(const PackedTensors& tensors, std::uint64_t columns, unsigned bits) const {
    const TensorInfo& codes = *tensors.codes;
    const TensorInfo* const index = model_.find(tensors.module + ".g_idx");
    if (index == nullptr) return nullptr;
    TRY(check_dtype(model_, *index, {DType::kI32}));
    TRY(check_shape(model_, *index, {columns},
                    fmt::format("{} is {} with {} bits", quote(codes.name), to_string(codes.shape), bits)));
    return index;
  }

  Result<std::uint64_t> group_size_of(const PackedTensors& tensors, bool has_index, std::uint64_t columns,
                                      std::optional<std::uint64_t> declared) const {
    const std::uint64_t groups = tensors.scales->shape[0];
    if (declared) {
      const std::uint64_t size = *declared == 0 ? columns : std::min(*declared, columns);
      TRY(check_shape(model_, *tensors.scales, {(columns + size - 1) / size, tensors.scales->shape[1]},
                      fmt::format("{} columns in groups of {}", columns, size)));
      return size;
    }
    if (!has_index && columns % groups != 0) {
      return fail_tensor(model_, *tensors.scales, Errc::kCorrupt, "has {} groups for {} columns, and group_size is missing in {}",
                         groups, columns, config_.section().place());
    }
    return (columns + groups - 1) / groups;
  }

  Result<void> add(const PackedTensors& tensors) {
    const PackedSettings declared = config_.of(tensors.module);
    const unsigned bits = TRY(bits_of(tensors, declared.bits));
    const std::uint64_t columns = TRY(columns_of(tensors, bits));
    const TensorInfo* const index = TRY(index_of(tensors, columns, bits));
    const std::uint64_t group_size = TRY(group_size_of(tensors, index != nullptr, columns, declared.group_size));
    if (index == nullptr && is_ordered_ && group_size < columns) {
      return fail_tensor(model_, *tensors.codes, Errc::kCorrupt, "{} is missing: desc_act is true in {}",
                         quote(tensors.module + ".g_idx"), config_.section().place());
    }
    Layer layer = packed_layer(
        model_, tensors, columns,
        {.scheme = {}, .mode = std::string(format_.name), .bits = bits, .group_size = static_cast<unsigned>(group_size)});
    if (index != nullptr) layer.parts.push_back(index);
    const GptqPacking packing{.bits = bits, .planes = format_.planes};
    layer.decoder = grouped_decoder(
        {.columns = columns,
         .group_size = group_size,
         .codes = gptq_codes(*tensors.codes, packing),
         .scales = transposed_scales(*tensors.scales),
         .zeros =
             gptq_zeros({.tensor = tensors.zeros, .packing = packing, .stored = format_.zeros, .is_symmetric = is_symmetric_}),
         .group_index = index,
         .allows_unset = false});
    found_.layers.push_back(std::move(layer));
    return {};
  }

  const Model& model_;
  const PackedConfig& config_;
  Format format_;
  bool is_symmetric_ = false;
  bool is_ordered_ = false;
  Layers found_;
};

// A shard alone does not say how to decode it, because it has no config.
Result<void> refuse_lone_shard(const Model& model) {
  for (const TensorInfo& tensor : model.tensors()) {
    if (!tensor.name.ends_with(kCodes) || tensor.dtype != DType::kI32 || tensor.shape.size() != 2) continue;
    const TensorInfo* const scales = find_sibling(model, tensor.name, kCodes, ".scales");
    if (scales == nullptr || scales->shape.size() != 2 || find_sibling(model, tensor.name, kCodes, ".qzeros") == nullptr)
      continue;
    const bool is_gptq = scales->shape[1] == tensor.shape[1];
    return fail_tensor(model, tensor, Errc::kUnsupported,
                       "codes of {}, whose {} are in config.json or {} only; open the directory that contains it",
                       is_gptq ? "GPTQ" : "AWQ", is_gptq ? "bits, group_size and checkpoint_format" : "group_size and version",
                       is_gptq ? "quantize_config.json" : "quant_config.json");
  }
  return {};
}

// Codes with scales and zero points, packed down the columns: of GPTQ-for-LLaMa, AutoGPTQ, GPTQModel and AutoRound.
class GptqScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    if (declared.empty()) {
      TRY(refuse_lone_shard(model));
      return std::nullopt;
    }
    const std::string& method = declared.front().method;
    if (is_auto_round(method)) {
      if (TRY(auto_round_packing(TRY(Section::parse(declared.front())))) == AutoRoundPacking::kAwq) return std::nullopt;
    } else if (std::ranges::find(kFormats, method, &Format::name) == kFormats.end()) {
      return std::nullopt;
    }
    std::vector<Declared> own;
    std::ranges::copy_if(declared, std::back_inserter(own), [&](const Declared& each) {
      return each.method == method || std::ranges::find(kFormats, each.method, &Format::name) != kFormats.end();
    });
    const PackedConfig config = TRY(PackedConfig::parse(model, own));
    const Format format = TRY(format_of(config, method));
    auto found = TRY(GptqFinder(model, config, format).run(declared.front()));
    TRY(refuse_conv1d(model));
    return found;
  }
};

}  // namespace

const LayerScheme& gptq_scheme() {
  static const GptqScheme scheme;
  return scheme;
}

}  // namespace ballast
