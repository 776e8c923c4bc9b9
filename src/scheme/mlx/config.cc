#include "scheme/mlx/config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <system_error>
#include <utility>

#include <fmt/ranges.h>

#include <ballast/glob.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "source/path/folder.h"
#include "source/uri.h"

namespace ballast {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::size_t kMostPatterns = 1000;  // every tensor may be matched with all of them
constexpr std::string_view kOwnSection = "quantization";
constexpr std::string_view kSharedSection = "quantization_config";  // that transformers has for all quantizers
constexpr std::string_view kList = "per_tensor";
constexpr std::array kModes{QuantizationMode::kAffine, QuantizationMode::kMxfp4, QuantizationMode::kMxfp8,
                            QuantizationMode::kNvfp4};

TensorQuantization defaults_of(QuantizationMode mode) {
  switch (mode) {
    case QuantizationMode::kAffine: return {.bits = 4, .group_size = 64, .mode = mode};
    case QuantizationMode::kMxfp4: return {.bits = 4, .group_size = 32, .mode = mode};
    case QuantizationMode::kMxfp8: return {.bits = 8, .group_size = 32, .mode = mode};
    case QuantizationMode::kNvfp4: return {.bits = 4, .group_size = 16, .mode = mode};
  }
  return {};
}

// The settings of one object; those not given are inherited.
struct Settings {
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;
  std::optional<QuantizationMode> mode;

  bool empty() const { return !bits && !group_size && !mode; }
};

Result<void> read_number(std::optional<std::int64_t>& out, std::string_view key, element value) {
  if (out) return fail(Errc::kCorrupt, "{} is given twice", key);
  out = whole_number(value);
  if (!out) return fail(Errc::kCorrupt, "{} is {}, expected a whole number", key, describe(value));
  return {};
}

Result<void> read_mode(std::optional<QuantizationMode>& out, element value) {
  if (out) return fail(Errc::kCorrupt, "mode is given twice");
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "mode is {}, expected a string", describe(value));
  const auto mode = std::ranges::find(kModes, text, [](QuantizationMode known) { return name(known); });
  if (mode == kModes.end()) {
    return fail(Errc::kUnsupported, "mode is {}, it must be affine, mxfp4, mxfp8 or nvfp4", describe(value));
  }
  out = *mode;
  return {};
}

Result<Settings> read_settings(object section) {
  Settings settings;
  for (const auto [key, value] : section) {
    Result<void> read;
    if (key == "bits") read = read_number(settings.bits, key, value);
    if (key == "group_size") read = read_number(settings.group_size, key, value);
    if (key == "mode") read = read_mode(settings.mode, value);
    if (!read) return std::unexpected(read.error());
  }
  return settings;
}

Result<unsigned> check(std::string_view key, std::int64_t value, std::initializer_list<unsigned> known, QuantizationMode mode) {
  for (const unsigned number : known) {
    if (value == number) return number;
  }
  return fail(Errc::kCorrupt, "{} is {}, mode {} allows {}", key, value, name(mode), fmt::join(known, ", "));
}

// A mode other than the inherited one has its own defaults.
Result<TensorQuantization> complete(const Settings& settings, const TensorQuantization& inherited) {
  const QuantizationMode mode = settings.mode.value_or(QuantizationMode::kAffine);
  const TensorQuantization own = defaults_of(mode);
  const TensorQuantization& base = inherited.mode == mode ? inherited : own;
  const bool affine = mode == QuantizationMode::kAffine;
  const std::int64_t bits = settings.bits.value_or(base.bits);
  const std::int64_t group_size = settings.group_size.value_or(base.group_size);
  const auto checked_bits = TRY(affine ? check("bits", bits, {2, 3, 4, 5, 6, 8}, mode) : check("bits", bits, {own.bits}, mode));
  const auto checked_size = TRY(affine ? check("group_size", group_size, {32, 64, 128, 256}, mode)
                                       : check("group_size", group_size, {own.group_size}, mode));
  return TensorQuantization{.bits = checked_bits, .group_size = checked_size, .mode = mode};
}

Result<void> add(MlxQuantization& config, std::string_view tensor, std::optional<TensorQuantization> quantization) {
  if (!config.per_tensor.try_emplace(std::string(tensor), quantization).second) {
    return fail(Errc::kCorrupt, "{} is given twice", quote(tensor));
  }
  if (tensor.find_first_of("*?[") == std::string_view::npos) return {};
  config.patterns.emplace_back(tensor);
  if (config.patterns.size() <= kMostPatterns) return {};
  return fail(Errc::kUnsupported, "more than {} patterns; {} is the first too many", kMostPatterns, quote(tensor));
}

enum class Others { kIgnored, kRefused };

// Objects with settings, true and false are overrides. A section may contain other values as well.
Result<void> read_overrides(MlxQuantization& config, object section, Others others) {
  for (const auto [key, value] : section) {
    object nested;
    bool quantized = false;
    if (key == kList && others == Others::kIgnored) continue;
    if (value.get(nested) == simdjson::SUCCESS) {
      const auto settings = read_settings(nested);
      if (!settings) return fail_at(quote(key), settings.error());
      if (settings->empty() && others == Others::kIgnored) continue;
      const auto quantization = complete(*settings, config.defaults);
      if (!quantization) return fail_at(quote(key), quantization.error());
      TRY(add(config, key, *quantization));
    } else if (value.get(quantized) == simdjson::SUCCESS) {
      TRY(add(config, key, quantized ? std::optional(config.defaults) : std::nullopt));
    } else if (others == Others::kRefused) {
      return fail(Errc::kCorrupt, "{} is {}, expected an object, true or false", quote(key), describe(value));
    }
  }
  return {};
}

// Empty if it is missing or null.
Result<std::optional<object>> find_section(object scope, std::string_view key) {
  const auto found = scope[key];
  if (found.error() != simdjson::SUCCESS || found.is_null()) return std::nullopt;
  object section;
  if (found.get(section) != simdjson::SUCCESS) {
    return fail(Errc::kCorrupt, "{} is {}, expected an object", key, describe(found.value_unsafe()));
  }
  return section;
}

Result<MlxQuantization> read_config(object section) {
  const auto settings = TRY(read_settings(section));
  const auto defaults = TRY(complete(settings, {}));
  MlxQuantization config{.defaults = defaults};
  TRY(read_overrides(config, section, Others::kIgnored));

  const auto list = TRY(find_section(section, kList));
  if (!list) return config;
  if (auto read = read_overrides(config, *list, Others::kRefused); !read) return fail_at(kList, read.error());
  return config;
}

// Other quantizers name themselves.
Result<void> check_quantizer(object section) {
  const auto method = section["quant_method"];
  if (method.error() != simdjson::SUCCESS || method.is_null()) return {};
  std::string_view mode;
  if (section["mode"].get(mode) != simdjson::SUCCESS) mode = name(QuantizationMode::kAffine);
  std::string_view text;
  if (method.get(text) == simdjson::SUCCESS && (text == "mlx" || text == mode)) return {};
  return fail(Errc::kUnsupported, "quant_method is {}; only MLX weights can be read", describe(method.value_unsafe()));
}

// Older sections of other quantizers do not name them.
Result<void> check_shared_section(object section) {
  TRY(check_quantizer(section));
  const auto method = section["quant_method"];
  const bool named = method.error() == simdjson::SUCCESS && !method.is_null();
  if (named || section["bits"].error() == simdjson::SUCCESS) return {};
  return fail(Errc::kUnsupported, "has no bits, so it is not from MLX; only MLX weights can be read");
}

Result<object> parse_object(simdjson::dom::parser& parser, std::string_view text) {
  const auto document = TRY(parse_json(parser, text));
  object root;
  if (document.get(root) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "the root is not an object");
  return root;
}

// Programs differ in which of the two sections they read.
Result<void> check_equal_sections(object root) {
  const auto own = find_section(root, kOwnSection);
  const auto shared = find_section(root, kSharedSection);
  if (!own || !*own || !shared || !*shared || !check_shared_section(**shared)) return {};
  const auto first = read_config(**own);
  const auto second = read_config(**shared);
  if (!first || !second || first->defaults == second->defaults) return {};
  const auto text = [](const TensorQuantization& found) {
    return fmt::format("{} bits, group size {}, mode {}", found.bits, found.group_size, name(found.mode));
  };
  return fail(Errc::kCorrupt, "{} says {}; {} says {}; make them equal", kOwnSection, text(first->defaults), kSharedSection,
              text(second->defaults));
}

std::string_view without_suffix(std::string_view tensor) {
  for (const std::string_view suffix : {".weight", ".scales", ".biases"}) {
    if (tensor.ends_with(suffix)) return tensor.substr(0, tensor.size() - suffix.size());
  }
  return tensor;
}

// quantization_config.json, if the folder has it.
Result<std::optional<MlxQuantization>> read_own(const Folder& folder) {
  const auto text = TRY(folder.read_text(kQuantizationConfigFile));
  if (!text) return std::nullopt;
  auto config = parse_mlx_quantization(*text);
  if (!config) return fail_at(shown(join_path(folder.path(), kQuantizationConfigFile)), config.error());
  return std::move(*config);
}

}  // namespace

std::string_view name(QuantizationMode mode) {
  switch (mode) {
    case QuantizationMode::kAffine: return "affine";
    case QuantizationMode::kMxfp4: return "mxfp4";
    case QuantizationMode::kMxfp8: return "mxfp8";
    case QuantizationMode::kNvfp4: return "nvfp4";
  }
  return "?";
}

std::optional<TensorQuantization> MlxQuantization::find(std::string_view tensor) const {
  constexpr std::string_view kPrefix = "language_model.";
  const std::string_view layer = without_suffix(tensor);
  if (!per_tensor.empty()) {
    const bool prefixed = tensor.starts_with(kPrefix);
    const std::string other = prefixed ? std::string(tensor.substr(kPrefix.size())) : std::string(kPrefix).append(tensor);
    for (const std::string_view candidate : {tensor, layer, std::string_view(other), without_suffix(other)}) {
      if (const auto found = per_tensor.find(candidate); found != per_tensor.end()) return found->second;
    }
  }
  for (const std::string& pattern : patterns) {
    if (glob_match(pattern, tensor) || glob_match(pattern, layer)) return per_tensor.at(pattern);
  }
  return defaults;
}

Result<MlxQuantization> parse_mlx_quantization(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_object(parser, text));
  TRY(check_quantizer(root));
  return read_config(root);
}

Result<std::optional<MlxQuantization>> parse_mlx_quantization_section(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_object(parser, text));
  TRY(check_equal_sections(root));
  for (const std::string_view key : {kOwnSection, kSharedSection}) {
    const auto section = TRY(find_section(root, key));
    if (!section) continue;
    const auto ours = key == kOwnSection ? Result<void>() : check_shared_section(*section);
    auto config = ours ? read_config(*section) : std::unexpected(ours.error());
    if (!config) return fail_at(key, config.error());
    return std::move(*config);
  }
  return std::nullopt;
}

Result<std::optional<MlxQuantization>> read_mlx_quantization(const std::string& directory) {
  const Folder folder(directory);
  auto own = read_own(folder);
  if (!own || *own) return own;
  const auto text = TRY(folder.read_text(kConfigFile));
  if (!text) return std::nullopt;
  auto config = parse_mlx_quantization_section(*text);
  if (!config) return fail_at(shown(join_path(directory, kConfigFile)), config.error());
  return config;
}

Result<std::optional<MlxQuantization>> mlx_quantization_of(const Model& model) {
  const Folder* const folder = ModelAccess::folder(model);
  if (folder == nullptr) return std::nullopt;
  auto own = read_own(*folder);
  if (!own || *own || !model.config()) return own;
  auto config = parse_mlx_quantization_section(model.config()->json);
  if (!config) return fail_at(shown(join_path(folder->path(), kConfigFile)), config.error());
  return config;
}

}  // namespace ballast
