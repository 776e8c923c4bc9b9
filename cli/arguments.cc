#include "arguments.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include <ballast/text.h>

namespace ballast::cli {
namespace {

std::unexpected<Error> wrong(std::string message) {
  return std::unexpected(Error{.code = Errc::kInvalidArgument, .message = std::move(message)});
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

}  // namespace

Result<DType> parse_dtype_argument(std::string_view text) {
  // As PyTorch, numpy and MLX call them.
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  constexpr std::array<Alias, 16> kAliases{{
      {"FLOAT64", DType::kF64},
      {"FLOAT32", DType::kF32},
      {"FLOAT16", DType::kF16},
      {"BFLOAT16", DType::kBF16},
      {"FP32", DType::kF32},
      {"FP16", DType::kF16},
      {"FLOAT8_E4M3FN", DType::kF8E4M3},
      {"F8_E4M3FN", DType::kF8E4M3},
      {"FLOAT8_E5M2", DType::kF8E5M2},
      {"INT8", DType::kI8},
      {"INT16", DType::kI16},
      {"INT32", DType::kI32},
      {"INT64", DType::kI64},
      {"UINT8", DType::kU8},
      {"UINT16", DType::kU16},
      {"UINT32", DType::kU32},
  }};
  const std::string wanted = upper(text);
  if (const auto dtype = parse_dtype(wanted)) return *dtype;
  if (const auto* const alias = std::ranges::find(kAliases, wanted, &Alias::name); alias != kAliases.end()) return alias->dtype;
  std::string known;
  for (const DTypeInfo& dtype : kDTypes) known += fmt::format("{}{}", known.empty() ? "" : ", ", dtype.name);
  std::ranges::transform(known, known.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return wrong(fmt::format("unknown dtype '{}'; use one of {}", escape(text), known));
}

Result<std::uint64_t> parse_size(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 12> kUnits{{{"", 1},
                                         {"B", 1},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9},
                                         {"TB", 1e12},
                                         {"KIB", 0x1p10},
                                         {"MIB", 0x1p20},
                                         {"GIB", 0x1p30},
                                         {"TIB", 0x1p40},
                                         {"M", 1e6},
                                         {"G", 1e9}}};
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  std::string_view rest(stop, text.data() + text.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto* const unit = std::ranges::find(kUnits, upper(rest), &Unit::name);
  constexpr double kMost = 0x1p62;
  if (error == std::errc{} && unit != kUnits.end() && number * unit->bytes >= 1 && number * unit->bytes <= kMost) {
    return static_cast<std::uint64_t>(number * unit->bytes);
  }
  return wrong(fmt::format("'{}' is not a size such as 300MB, 5GB or 2GiB", escape(text)));
}

Result<std::pair<std::string, std::string>> parse_pair(std::string_view option, std::string_view expected,
                                                       std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return wrong(fmt::format("{} '{}': expected {}", option, escape(text), expected));
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

Lora parse_lora(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return {.path = std::string(text)};
  const std::string_view number = text.substr(equals + 1);
  double scale = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), scale);
  const bool is_number = error == std::errc{} && stop == number.data() + number.size();
  return is_number ? Lora{.path = std::string(text.substr(0, equals)), .scale = scale} : Lora{.path = std::string(text)};
}

std::vector<Lora> parse_loras(const std::vector<std::string>& texts) {
  std::vector<Lora> loras;
  for (const std::string& text : texts) loras.push_back(parse_lora(text));
  return loras;
}

}  // namespace ballast::cli
