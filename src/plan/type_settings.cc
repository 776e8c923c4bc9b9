#include "plan/type_settings.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "quantize/value_type.h"

namespace ballast {
namespace {

constexpr unsigned kNoBits = 16;  // of unquantized layers in layer_bit_widths

// What a format stores.
struct FormatTypes {
  QuantizeFormat format;
  std::array<bool, 5> types;  // by QuantizeType
  unsigned largest_group;
};
constexpr std::array kFormats{
    FormatTypes{.format = QuantizeFormat::kParquet, .types = {true}, .largest_group = 256},
    FormatTypes{.format = QuantizeFormat::kMlx, .types = {true, false, true, true, true}, .largest_group = 128},
    FormatTypes{.format = QuantizeFormat::kCompressedTensors, .types = {true, true, true, true, true}, .largest_group = 128},
    FormatTypes{.format = QuantizeFormat::kHfFp8, .types = {false, true}, .largest_group = 0},
};

const FormatTypes& types_of(QuantizeFormat format) { return kFormats[static_cast<std::size_t>(format)]; }
bool has_type(QuantizeFormat format, QuantizeType type) { return types_of(format).types[static_cast<std::size_t>(type)]; }

bool is_compressed_tensors(const QuantizeConfig& config) { return config.format == QuantizeFormat::kCompressedTensors; }

// HF FP8 has one type, so that the default of the settings does not count.
QuantizeType type_of(const QuantizeConfig& config) {
  const bool is_implied = config.type == QuantizeType::kInt && !has_type(config.format, config.type);
  return is_implied ? QuantizeType::kFp8 : config.type;
}

Result<void> check_fixed(const QuantizeConfig& config, std::string_view field, unsigned value, unsigned fixed) {
  const QuantizeType type = type_of(config);
  if (value == fixed) return {};
  return fail(Errc::kInvalidArgument, "{} is {}, but type {} fixes it to {}; leave out {}", field, value, name(type), fixed,
              field);
}

Result<void> check_format(const QuantizeConfig& config) {
  const QuantizeType type = type_of(config);
  if (has_type(config.format, type)) return {};
  std::vector<std::string_view> formats;
  for (const FormatTypes& other : kFormats) {
    if (has_type(other.format, type)) formats.push_back(name(other.format));
  }
  return fail(Errc::kInvalidArgument, "type is {}, which format {} does not have; give format {}", name(type),
              name(config.format), fmt::join(formats, " or "));
}

// What needs a choice of bits, or integers.
Result<void> check_choices(const QuantizeConfig& config) {
  const std::string_view type = name(type_of(config));
  if (config.method == QuantizeMethod::kHqq) {
    return fail(Errc::kInvalidArgument, "method is hqq, which needs type int, not {}; give method auto, search or rtn", type);
  }
  if (config.recipe != Recipe::kUniform) {
    return fail(Errc::kInvalidArgument, "recipe is {}, but type {} fixes the bits; leave out recipe", name(config.recipe), type);
  }
  if (config.target_model_size) {
    return fail(Errc::kInvalidArgument, "target_model_size_mb needs a choice of bits, but type {} fixes them; leave out {}", type,
                "target_model_size_mb");
  }
  for (const auto& [layer, bits] : config.layer_bit_widths) {
    if (bits == kNoBits) continue;
    return fail(Errc::kInvalidArgument, "layer_bit_widths: {} is {}, with type {} it must be {}", quote(layer), bits, type,
                kNoBits);
  }
  return {};
}

Result<void> check_strategy(const QuantizeConfig& config) {
  if (!config.strategy) return {};
  if (!is_compressed_tensors(config)) {
    return fail(Errc::kInvalidArgument, "strategy is {}, which needs format compressed-tensors, not {}; leave out strategy",
                name(*config.strategy), name(config.format));
  }
  const bool is_integer = config.type == QuantizeType::kInt;
  if (!is_integer && config.type != QuantizeType::kFp8) {
    return fail(Errc::kInvalidArgument, "strategy is {}, but type {} fixes the groups; leave out strategy",
                name(*config.strategy), name(config.type));
  }
  const bool is_for_integers = *config.strategy == Strategy::kGroup || *config.strategy == Strategy::kChannel;
  if (is_integer && !is_for_integers) {
    return fail(Errc::kInvalidArgument, "strategy is {}, with type int it must be group or channel, as pack-quantized requires",
                name(*config.strategy));
  }
  if (!is_integer && *config.strategy == Strategy::kGroup) {
    return fail(Errc::kInvalidArgument, "strategy is group, with type fp8 it must be tensor, channel or block");
  }
  return {};
}

// What compressed-tensors and HF FP8 cannot store.
Result<void> check_plain(const QuantizeConfig& config) {
  if (config.asymmetric && !(is_compressed_tensors(config) && config.type == QuantizeType::kInt)) {
    return fail(Errc::kInvalidArgument, "asymmetric is true, which needs format compressed-tensors and type int; leave it out");
  }
  if (config.format == QuantizeFormat::kParquet || config.format == QuantizeFormat::kMlx) return {};
  if (config.method == QuantizeMethod::kHqq) {
    return fail(Errc::kInvalidArgument,
                "method is hqq, whose zero points format {} does not have; give method auto, search or rtn", name(config.format));
  }
  for (const auto& [field, value] :
       {std::pair("enable_spatial", config.enable_spatial), std::pair("enable_time_aware", config.enable_time_aware)}) {
    if (!value.value_or(false)) continue;
    return fail(Errc::kInvalidArgument, "{} is true, which format {} cannot store; leave it out", field, name(config.format));
  }
  return {};
}

Result<void> check_numbers(const QuantizeConfig& config) {
  if (config.bit_width == 7 && !is_compressed_tensors(config)) {
    return fail(Errc::kInvalidArgument, "bit_width is 7, it must be 2, 3, 4, 5, 6 or 8");
  }
  if (config.group_size == 16) return fail(Errc::kInvalidArgument, "group_size is 16, it must be 32, 64, 128 or 256");
  if (config.group_size > types_of(config.format).largest_group && strategy_of(config) == Strategy::kGroup) {
    return fail(Errc::kInvalidArgument, "group_size is {}{}, with format {} it must be 32, 64 or 128", config.group_size,
                Profile(config.deployment_profile) == Profile::kEdge ? " in the profile edge" : "", name(config.format));
  }
  return {};
}

}  // namespace

Result<void> check_type(const QuantizeConfig& config) {
  TRY(check_format(config));
  TRY(check_strategy(config));
  TRY(check_plain(config));
  if (float_type(type_of(config)) == nullptr) return check_numbers(config);
  TRY(check_choices(config));
  const QuantizeConfig profile = QuantizeConfig::for_profile(config.deployment_profile);
  return check_given(config,
                     {.bit_width = config.bit_width != profile.bit_width, .group_size = config.group_size != profile.group_size});
}

Result<void> check_given(const QuantizeConfig& config, const GivenNumbers& given) {
  if (given.type && config.type != type_of(config)) {
    return fail(Errc::kInvalidArgument, "type is {}, which format {} does not have; leave out type", name(config.type),
                name(config.format));
  }
  const FloatType* const type = float_type(type_of(config));
  if (type == nullptr) {
    const unsigned of_profile = QuantizeConfig::for_profile(config.deployment_profile).group_size;
    if (!given.group_size || config.strategy != Strategy::kChannel || config.group_size == of_profile) return {};
    return fail(Errc::kInvalidArgument, "group_size is {}, but strategy channel has no groups; leave out group_size",
                config.group_size);
  }
  if (given.bit_width) TRY(check_fixed(config, "bit_width", config.bit_width, type->bits));
  if (given.group_size) TRY(check_fixed(config, "group_size", config.group_size, type->group_size));
  return {};
}

QuantizeConfig with_numbers_of_type(QuantizeConfig config) {
  config.type = type_of(config);
  if (const FloatType* const type = float_type(config.type)) {
    config.bit_width = type->bits;
    config.group_size = type->group_size;
  }
  return config;
}

Strategy strategy_of(const QuantizeConfig& config) {
  if (config.strategy) return *config.strategy;
  if (config.format == QuantizeFormat::kHfFp8) return Strategy::kBlock;
  return config.type == QuantizeType::kFp8 ? Strategy::kChannel : Strategy::kGroup;
}

}  // namespace ballast
