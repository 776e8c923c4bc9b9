#include "plan/config_json.h"

#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/config_fields.h"

namespace ballast {
namespace {

std::string dump(const nlohmann::json& value) { return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

// A scalar as JSON: numbers and booleans unquoted, an empty one as null.
std::string word_json(const std::string& word) {
  if (word.empty()) return dump(nullptr);
  const nlohmann::json parsed = nlohmann::json::parse(word, nullptr, false);
  return dump(parsed.is_number() || parsed.is_boolean() ? parsed : nlohmann::json(word));
}

struct ValueJson {
  std::string operator()(const std::string& word) const { return word_json(word); }
  std::string operator()(const std::vector<std::string>& list) const {
    std::vector<std::string> entries;
    for (const std::string& entry : list) entries.push_back(dump(entry));
    return fmt::format("[{}]", fmt::join(entries, ", "));
  }
  std::string operator()(const std::map<std::string, std::string>& pairs) const {
    std::vector<std::string> entries;
    for (const auto& [name, value] : pairs) entries.push_back(fmt::format("{}: {}", dump(name), word_json(value)));
    return fmt::format("{{{}}}", fmt::join(entries, ", "));
  }
};

}  // namespace

std::string settings_json(const QuantizeConfig& config) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    if (field.name == "num_threads" || field.name == "max_memory_limit_mb" || !field.is_recorded(config)) continue;
    text += fmt::format("{}\n    \"{}\": {}", text.empty() ? "{" : ",", field.name, std::visit(ValueJson(), field.get(config)));
  }
  return text + "\n  }";
}

}  // namespace ballast
