#include "plan/type_settings.h"

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "quantize/value_type.h"

namespace ballast {
namespace {

constexpr unsigned kNoBits = 16;  // of unquantized layers in layer_bit_widths

Result<void> check_fixed(const QuantizeConfig& config, std::string_view field, unsigned value, unsigned fixed) {
  if (value == fixed) return {};
  return fail(Errc::kInvalidArgument, "{} is {}, but type {} fixes it to {}; leave out {}", field, value, name(config.type),
              fixed, field);
}

// What needs a choice of bits, or integers.
Result<void> check_choices(const QuantizeConfig& config) {
  const std::string_view type = name(config.type);
  if (config.format != QuantizeFormat::kMlx) {
    return fail(Errc::kInvalidArgument, "type is {}, which format {} does not have; give format mlx", type, name(config.format));
  }
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

}  // namespace

Result<void> check_type(const QuantizeConfig& config) {
  const FloatType* const type = float_type(config.type);
  if (type == nullptr) {
    if (config.group_size != 16) return {};
    return fail(Errc::kInvalidArgument, "group_size is 16, it must be 32, 64, 128 or 256");
  }
  TRY(check_choices(config));
  const QuantizeConfig profile = QuantizeConfig::for_profile(config.deployment_profile);
  return check_given(config,
                     {.bit_width = config.bit_width != profile.bit_width, .group_size = config.group_size != profile.group_size});
}

Result<void> check_given(const QuantizeConfig& config, const GivenNumbers& given) {
  const FloatType* const type = float_type(config.type);
  if (type == nullptr) return {};
  if (given.bit_width) TRY(check_fixed(config, "bit_width", config.bit_width, type->bits));
  if (given.group_size) TRY(check_fixed(config, "group_size", config.group_size, type->group_size));
  return {};
}

QuantizeConfig with_numbers_of_type(QuantizeConfig config) {
  if (const FloatType* const type = float_type(config.type)) {
    config.bit_width = type->bits;
    config.group_size = type->group_size;
  }
  return config;
}

}  // namespace ballast
