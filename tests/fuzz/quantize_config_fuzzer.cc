// Reads its input as the YAML of a QuantizeConfig. What is accepted must be valid, and stay the same when it is written and read.

#include <cstdint>
#include <span>
#include <string_view>

#include <ballast/quantize_config.h>

#include "check.h"

namespace ballast {
namespace {

void check_yaml(std::string_view yaml) {
  const auto fields = parse_config_fields(yaml);
  if (!fields) return check(fields.error().code == Errc::kInvalidArgument && !fields.error().message.empty());
  const auto config = make_quantize_config(std::span(&*fields, 1));
  if (!config) return check(config.error().code == Errc::kInvalidArgument && !config.error().message.empty());
  check(validate(*config).has_value());

  const auto again = parse_config_fields(to_yaml(*config));
  check(again && make_quantize_config(std::span(&*again, 1)) == *config);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::check_yaml({reinterpret_cast<const char*>(data), size});
  return 0;
}
