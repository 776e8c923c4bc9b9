#include "jobs/lora/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {

namespace dom = simdjson::dom;

// Reads the members of an object whose names start with a prefix.
class LoraConfigReader {
 public:
  LoraConfigReader(dom::object object, std::string_view prefix) : object_(object), prefix_(prefix) {}

  Result<LoraConfig> read() const {
    TRY(refuse_others());
    LoraConfig config;
    config.by_root_ = TRY(flag("use_rslora"));
    config.fan_in_fan_out_ = TRY(flag("fan_in_fan_out"));
    const auto alpha = find("lora_alpha");
    if (!alpha) return fail(Errc::kCorrupt, "{}lora_alpha is missing", prefix_);
    config.alpha_ = TRY(alpha_of("lora_alpha", *alpha));
    if (const auto rank = find("r")) config.rank_ = TRY(rank_of("r", *rank));
    TRY(read_patterns("rank_pattern", config.ranks_, [&](auto name, auto value) { return rank_of(name, value); }));
    TRY(read_patterns("alpha_pattern", config.alphas_, [&](auto name, auto value) { return alpha_of(name, value); }));
    return config;
  }

 private:
  std::optional<dom::element> find(std::string_view name) const {
    dom::element value;
    if (object_[prefix_ + std::string(name)].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }

  std::unexpected<Error> reject(std::string_view name, dom::element value, std::string_view expected) const {
    return fail(Errc::kCorrupt, "{}{} is {}, expected {}", prefix_, escape(name), describe(value), expected);
  }

  Result<bool> flag(std::string_view name) const {
    const auto value = find(name);
    if (!value) return false;
    bool is_set = false;
    if (value->get(is_set) != simdjson::SUCCESS) return reject(name, *value, "true or false");
    return is_set;
  }

  Result<double> alpha_of(std::string_view name, dom::element value) const {
    double alpha = 0;
    if (value.get(alpha) != simdjson::SUCCESS || !std::isfinite(alpha)) return reject(name, value, "a number");
    return alpha;
  }

  Result<std::uint64_t> rank_of(std::string_view name, dom::element value) const {
    const auto rank = whole_number(value);
    if (!rank || *rank < 1) return reject(name, value, "a positive whole number");
    return static_cast<std::uint64_t>(*rank);
  }

  // Each name is a regular expression that the last parts of a module's name match.
  template <class T, class Read>
  Result<void> read_patterns(std::string_view member, std::vector<std::pair<Regex, T>>& patterns, const Read& read_value) const {
    const auto value = find(member);
    if (!value) return {};
    dom::object all;
    if (value->get(all) != simdjson::SUCCESS) return reject(member, *value, "an object");
    for (const auto [name, each] : all) {
      auto regex = Regex::compile(fmt::format("^(.*\\.)?({})$", name));
      if (!regex) return fail(Errc::kUnsupported, "{}{}: {}", prefix_, member, regex.error().message);
      patterns.emplace_back(std::move(*regex), TRY(read_value(name, each)));
    }
    return {};
  }

  // What no config of a plain LoRA sets.
  Result<void> refuse_others() const {
    constexpr std::array<std::string_view, 7> kOthers{"layer_replication",       "target_parameters", "trainable_token_indices",
                                                      "alora_invocation_tokens", "arrow_config",      "kasa_config",
                                                      "monteclora_config"};
    constexpr std::array<std::string_view, 5> kChangeBase{"pissa", "corda", "olora", "loftq", "lora_ga"};
    const auto refuse = [&](std::string_view name, dom::element value) {
      return fail(Errc::kUnsupported, "{}{} is {}: this kind of adapter cannot be merged{}", prefix_, escape(name),
                  describe(value), name == "use_dora" ? " (DoRA)" : "");
    };
    if (const auto type = find("peft_type")) {
      std::string_view text;
      if (type->get(text) != simdjson::SUCCESS || text != "LORA") return refuse("peft_type", *type);
    }
    for (const std::string_view name : kOthers) {
      if (const auto value = find(name); value && !is_empty(*value)) return refuse(name, *value);
    }
    for (const auto [key, value] : object_) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = key.substr(prefix_.size());
      if (name.starts_with("use_") && name != "use_rslora" && !is_empty(value)) return refuse(name, value);
    }
    std::string_view start;
    if (const auto value = find("init_lora_weights"); value && value->get(start) == simdjson::SUCCESS) {
      for (const std::string_view kind : kChangeBase) {
        if (!start.starts_with(kind)) continue;
        return fail(Errc::kUnsupported, "{}init_lora_weights is {}, which also changes the base; convert the adapter with PEFT",
                    prefix_, describe(*value));
      }
    }
    return {};
  }

  static bool is_empty(dom::element value) {
    bool flag = false;
    if (value.get(flag) == simdjson::SUCCESS) return !flag;
    if (dom::array array; value.get(array) == simdjson::SUCCESS) return array.size() == 0;
    if (dom::object object; value.get(object) == simdjson::SUCCESS) return object.size() == 0;
    return value.is_null();
  }

  dom::object object_;
  std::string prefix_;
};

Result<std::optional<LoraConfig>> LoraConfig::parse(std::string_view json, std::string_view prefix) {
  dom::parser parser;
  const dom::element root = TRY(parse_json(parser, json));
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "{}, expected an object", describe(root));
  const bool has_any = std::ranges::any_of(object, [&](const auto& member) { return member.key.starts_with(prefix); });
  if (!has_any) return std::nullopt;
  return LoraConfigReader(object, prefix).read();
}

Result<double> LoraConfig::scale_of(std::string_view module, std::uint64_t rank) const {
  std::optional<std::uint64_t> expected = rank_;
  for (const auto& [regex, value] : ranks_) {
    if (!regex.found_in(module)) continue;
    expected = value;
    break;
  }
  if (expected && *expected != rank) return fail(Errc::kCorrupt, "the rank is {}, {} has {}", rank, kLoraConfigFile, *expected);
  double alpha = alpha_;
  for (const auto& [regex, value] : alphas_) {
    if (!regex.found_in(module)) continue;
    alpha = value;
    break;
  }
  const auto divisor = static_cast<double>(rank);
  return alpha / (by_root_ ? std::sqrt(divisor) : divisor);
}

}  // namespace ballast
