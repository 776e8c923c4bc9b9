#include "plan/config_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <ranges>
#include <type_traits>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/regex.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

// "2, 3 or 4"
std::string one_of(std::span<const std::string> words) {
  if (words.size() == 1) return words.front();
  return fmt::format("{} or {}", fmt::join(words.first(words.size() - 1), ", "), words.back());
}

// The values that a field may have. Each constraint tests a value and describes itself for messages.

template <unsigned... kValues>
struct OneOf {
  static bool has(unsigned value) { return ((value == kValues) || ...); }
  static std::string text() { return one_of(std::array{fmt::to_string(kValues)...}); }
};

template <unsigned kFirst, unsigned kLast>
struct FromTo {
  static bool has(double value) { return value >= kFirst && value <= kLast; }
  static std::string text() { return fmt::format("from {} to {}", kFirst, kLast); }
};

// validate() accepts 16 for the type that has it.
struct GroupSizes {
  using Named = OneOf<32, 64, 128, 256>;
  static bool has(unsigned value) { return value == 16 || Named::has(value); }
  static std::string text() { return Named::text(); }
};

// validate() accepts 7 for the format that has it.
struct BitWidths {
  using Named = OneOf<2, 3, 4, 5, 6, 8>;
  static bool has(unsigned value) { return value == 7 || Named::has(value); }
  static std::string text() { return Named::text(); }
};

struct AboveZero {
  static bool has(double value) { return value > 0 && value <= std::numeric_limits<double>::max(); }
  static std::string text() { return "a number above 0"; }
};

struct TrueOrFalse {
  static bool has(bool) { return true; }
  static std::string text() { return "true or false"; }
};

template <auto kFirst, auto kLast>
struct Words {
  using Word = decltype(kFirst);

  static bool has(Word word) { return word >= kFirst && word <= kLast; }
  static std::string text() {
    std::vector<std::string> names;
    for (const Word word : all()) names.emplace_back(name(word));
    return one_of(names);
  }
  static auto all() {
    return std::views::iota(static_cast<int>(kFirst), static_cast<int>(kLast) + 1) |
           std::views::transform([](int word) { return static_cast<Word>(word); });
  }
};

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> parse_bool(std::string_view text) {
  constexpr std::array<std::string_view, 4> kTrue{"true", "yes", "on", "1"};
  constexpr std::array<std::string_view, 4> kFalse{"false", "no", "off", "0"};
  const std::string lower = lowercase(text);
  if (std::ranges::find(kTrue, lower) != kTrue.end()) return true;
  if (std::ranges::find(kFalse, lower) != kFalse.end()) return false;
  return std::nullopt;
}

template <class T, class Allowed>
std::optional<T> parse_word(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(text);
  } else if constexpr (std::is_enum_v<T>) {
    for (const T word : Allowed::all()) {
      if (name(word) == text) return word;
    }
    return std::nullopt;
  } else {
    return parse_number<T>(text);
  }
}

template <class T>
std::string print_word(T value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(name(value));
  } else {
    return fmt::to_string(value);
  }
}

std::unexpected<Error> reject(std::string_view field, std::string_view found, std::string_view allowed) {
  return fail(Errc::kInvalidArgument, "{} is {}, it must be {}", field, found, allowed);
}

std::string describe(const ConfigValue& value) {
  if (const auto* const word = std::get_if<std::string>(&value)) return quote(*word);
  return std::holds_alternative<std::vector<std::string>>(value) ? "a list" : "a mapping";
}

template <class T>
struct OptionalOf {
  using Value = T;
  static constexpr bool kIs = false;
};
template <class T>
struct OptionalOf<std::optional<T>> {
  using Value = T;
  static constexpr bool kIs = true;
};

template <auto kMember>
using MemberType = std::remove_cvref_t<decltype(std::declval<QuantizeConfig&>().*kMember)>;

// A scalar field.
template <auto kMember, class Allowed>
struct WordField {
  using Optional = OptionalOf<MemberType<kMember>>;
  using Value = Optional::Value;

  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr) return reject(field, describe(value), Allowed::text());
    if constexpr (Optional::kIs) {
      (config.*kMember).reset();
      if (text->empty()) return {};
    }
    const std::optional<Value> parsed = parse_word<Value, Allowed>(*text);
    if (!parsed) return reject(field, quote(*text), Allowed::text());
    const Value word = *parsed;
    config.*kMember = word;
    return check(field, config);
  }

  static Result<void> check(std::string_view field, const QuantizeConfig& config) {
    const std::optional<Value> value = config.*kMember;
    if (value && !Allowed::has(*value)) return reject(field, print_word(*value), Allowed::text());
    return {};
  }

  static ConfigValue get(const QuantizeConfig& config) {
    const std::optional<Value> value = config.*kMember;
    return value ? print_word(*value) : std::string();
  }
};

// Bytes in the config, whole MiB in text, rounded down.
struct MemoryLimitField {
  using Allowed = FromTo<16, 1'048'576>;

  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr) return reject(field, describe(value), Allowed::text());
    const auto mebibytes = parse_number<unsigned>(*text);
    if (!mebibytes) return reject(field, quote(*text), Allowed::text());
    config.max_memory_limit = std::uint64_t{*mebibytes} << 20;
    return check(field, config);
  }

  static Result<void> check(std::string_view field, const QuantizeConfig& config) {
    const std::uint64_t mebibytes = config.max_memory_limit >> 20;
    if (!Allowed::has(static_cast<double>(mebibytes))) return reject(field, fmt::to_string(mebibytes), Allowed::text());
    return {};
  }

  static ConfigValue get(const QuantizeConfig& config) { return fmt::to_string(config.max_memory_limit >> 20); }
};

// Bytes in the config, 10^6 bytes in text, as the shortest decimal number.
struct TargetSizeField {
  static constexpr double kMegabyte = 1e6;
  static constexpr std::uint64_t kMost = 1'000'000'000'000'000;  // exact as a double, in bytes and in MB

  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr) return reject(field, describe(value), AboveZero::text());
    config.target_model_size.reset();
    if (text->empty()) return {};
    const auto megabytes = parse_number<double>(*text);
    if (!megabytes) return reject(field, quote(*text), AboveZero::text());
    if (!AboveZero::has(*megabytes)) return reject(field, print_word(*megabytes), AboveZero::text());
    const double bytes = std::round(*megabytes * kMegabyte);
    if (bytes < 1) return reject(field, print_word(*megabytes), "at least 0.000001");
    if (bytes > static_cast<double>(kMost)) return reject(field, print_word(*megabytes), most());
    config.target_model_size = static_cast<std::uint64_t>(bytes);
    return {};
  }

  static Result<void> check(std::string_view field, const QuantizeConfig& config) {
    if (!config.target_model_size) return {};
    if (*config.target_model_size == 0) return reject(field, "0", AboveZero::text());
    if (*config.target_model_size > kMost) return reject(field, print(config), most());
    return {};
  }

  static ConfigValue get(const QuantizeConfig& config) { return config.target_model_size ? print(config) : std::string(); }

 private:
  static std::string print(const QuantizeConfig& config) {
    return print_word(static_cast<double>(*config.target_model_size) / kMegabyte);
  }
  static std::string most() { return fmt::format("at most {}", static_cast<double>(kMost) / kMegabyte); }
};

// Sets every field to the profile's value.
struct ProfileField {
  using Allowed = Words<Profile::kEdge, Profile::kCloud>;

  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const text = std::get_if<std::string>(&value);
    if (text == nullptr) return reject(field, describe(value), Allowed::text());
    const auto profile = parse_word<Profile, Allowed>(*text);
    if (!profile) return reject(field, quote(*text), Allowed::text());
    config = QuantizeConfig::for_profile(*profile);
    return {};
  }

  static Result<void> check(std::string_view, const QuantizeConfig&) { return {}; }

  static ConfigValue get(const QuantizeConfig& config) { return std::string(name(config.deployment_profile)); }
};

Result<void> check_name(std::string_view field, std::string_view text) {
  if (text.empty()) return fail(Errc::kInvalidArgument, "{}: a name is empty", field);
  if (!is_utf8(text)) return fail(Errc::kInvalidArgument, "{}: {} is not UTF-8", field, quote(text));
  return {};
}

Result<void> check_regex(std::string_view field, std::string_view text) {
  TRY(check_name(field, text));
  if (const auto regex = Regex::compile(text); !regex) return fail_at(field, regex.error());
  return {};
}

template <auto kMember, auto kCheckOne, std::size_t kMost>
struct ListField {
  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const list = std::get_if<std::vector<std::string>>(&value);
    if (list == nullptr) return reject(field, describe(value), "a list");
    config.*kMember = *list;
    return check(field, config);
  }

  static Result<void> check(std::string_view field, const QuantizeConfig& config) {
    const auto& list = config.*kMember;
    if (list.size() > kMost) return reject(field, fmt::format("{} entries long", list.size()), fmt::format("at most {}", kMost));
    for (const std::string& text : list) {
      TRY(kCheckOne(field, text));
    }
    return {};
  }

  static ConfigValue get(const QuantizeConfig& config) { return config.*kMember; }
};

template <auto kMember, class Allowed>
struct PairsField {
  static Result<void> set(std::string_view field, const ConfigValue& value, QuantizeConfig& config) {
    const auto* const pairs = std::get_if<std::map<std::string, std::string>>(&value);
    if (pairs == nullptr) return reject(field, describe(value), "a mapping from names to bits");
    (config.*kMember).clear();
    for (const auto& [name, text] : *pairs) {
      const auto number = parse_number<unsigned>(text);
      if (!number) return reject_one(field, name, quote(text));
      (config.*kMember).emplace(name, *number);
    }
    return check(field, config);
  }

  static Result<void> check(std::string_view field, const QuantizeConfig& config) {
    for (const auto& [name, number] : config.*kMember) {
      TRY(check_name(field, name));
      if (!Allowed::has(number)) return reject_one(field, name, fmt::to_string(number));
    }
    return {};
  }

  static ConfigValue get(const QuantizeConfig& config) {
    std::map<std::string, std::string> pairs;
    for (const auto& [name, number] : config.*kMember) pairs.emplace(name, fmt::to_string(number));
    return pairs;
  }

 private:
  static std::unexpected<Error> reject_one(std::string_view field, std::string_view name, std::string_view found) {
    return fail(Errc::kInvalidArgument, "{}: {} is {}, it must be {}", field, quote(name), found, Allowed::text());
  }
};

template <class Kind>
constexpr ConfigField field(std::string_view name, std::optional<std::string_view> unrecorded = std::nullopt) {
  return {.name = name, .set = Kind::set, .check = Kind::check, .get = Kind::get, .unrecorded = unrecorded};
}

constexpr std::size_t kMostNames = 100'000;
constexpr std::size_t kMostPatterns = 1'000;  // each takes time to compile, and is tried on each tensor

using Config = QuantizeConfig;
using Toggle = TrueOrFalse;

constexpr std::array kFields{
    field<ProfileField>("deployment_profile"),
    field<WordField<&Config::bit_width, BitWidths>>("bit_width"),
    field<WordField<&Config::group_size, GroupSizes>>("group_size"),
    field<WordField<&Config::type, Words<QuantizeType::kInt, QuantizeType::kNvfp4>>>("type", "int"),
    field<WordField<&Config::strategy, Words<Strategy::kTensor, Strategy::kBlock>>>("strategy", ""),
    field<WordField<&Config::asymmetric, Toggle>>("asymmetric", "false"),
    field<WordField<&Config::method, Words<QuantizeMethod::kAuto, QuantizeMethod::kHqq>>>("method"),
    field<WordField<&Config::format, Words<QuantizeFormat::kParquet, QuantizeFormat::kHfFp8>>>("format"),
    field<WordField<&Config::recipe, Words<Recipe::kUniform, Recipe::kMixed4And6>>>("recipe"),
    field<WordField<&Config::modality, Words<Modality::kText, Modality::kAudio>>>("modality"),
    field<WordField<&Config::min_accuracy, FromTo<0, 1>>>("min_accuracy"),
    field<WordField<&Config::fail_fast, Toggle>>("fail_fast"),
    field<WordField<&Config::skip_sensitive_layers, Toggle>>("skip_sensitive_layers"),
    field<ListField<&Config::sensitive_layer_names, check_name, kMostNames>>("sensitive_layer_names"),
    field<ListField<&Config::sensitive_layer_patterns, check_regex, kMostPatterns>>("sensitive_layer_patterns"),
    field<PairsField<&Config::layer_bit_widths, OneOf<2, 3, 4, 5, 6, 8, 16>>>("layer_bit_widths"),
    field<WordField<&Config::num_threads, FromTo<0, 1024>>>("num_threads"),
    field<MemoryLimitField>("max_memory_limit_mb"),
    field<TargetSizeField>("target_model_size_mb"),
    field<WordField<&Config::enable_time_aware, Toggle>>("enable_time_aware"),
    field<WordField<&Config::enable_spatial, Toggle>>("enable_spatial"),
    field<WordField<&Config::num_time_groups, FromTo<1, 1000>>>("num_time_groups"),
    field<WordField<&Config::calibration_samples, FromTo<1, 1'000'000>>>("calibration_samples"),
};

}  // namespace

ConfigValue ConfigField::empty_value() const {
  ConfigValue value = get({});
  std::visit([](auto& held) { held.clear(); }, value);
  return value;
}

bool ConfigField::is_recorded(const QuantizeConfig& config) const {
  const ConfigValue value = get(config);
  const auto* const word = std::get_if<std::string>(&value);
  return !unrecorded || word == nullptr || *word != *unrecorded;
}

std::span<const ConfigField> config_fields() { return kFields; }

Result<const ConfigField*> find_config_field(std::string_view name) {
  const auto found = std::ranges::find(kFields, name, &ConfigField::name);
  if (found != kFields.end()) return &*found;

  constexpr std::size_t kMostEdits = 2;
  SimilarName similar(name, kMostEdits);
  for (const ConfigField& known : kFields) similar.offer(known.name);
  if (!similar.best().empty()) {
    return fail(Errc::kInvalidArgument, "unknown setting {}; did you mean {}?", quote(name), similar.best());
  }
  return fail(Errc::kInvalidArgument, "unknown setting {}; the settings are {}", quote(name),
              fmt::join(kFields | std::views::transform(&ConfigField::name), ", "));
}

}  // namespace ballast
