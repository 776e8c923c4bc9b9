#include "calibrate/forward/text_config.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/try.h"

namespace ballast {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

Result<TextConfig> TextConfig::parse(simdjson::dom::parser& parser, std::string_view json) {
  const element document = TRY(parse_json(parser, json));
  object root;
  if (document.get(root) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "the config is not an object");
  std::vector<object> scopes;
  if (object text; root["text_config"].get(text) == simdjson::SUCCESS) scopes.push_back(text);
  scopes.push_back(root);
  return TextConfig(std::move(scopes), std::make_shared<std::optional<Error>>());
}

std::optional<element> TextConfig::find(std::string_view name) const {
  for (const object& scope : scopes_) {
    element value;
    if (scope[name].get(value) == simdjson::SUCCESS && !value.is_null()) return value;
  }
  return std::nullopt;
}

bool TextConfig::mentions(std::string_view name) const {
  return std::ranges::any_of(scopes_, [&](const object& scope) { return scope[name].error() == simdjson::SUCCESS; });
}

void TextConfig::reject(std::string_view name, element value, std::string_view expected) const {
  if (*error_) return;
  *error_ = Error{.code = Errc::kCorrupt, .message = fmt::format("{} is {}, expected {}", name, describe(value), expected)};
}

std::uint64_t TextConfig::whole(std::string_view name, std::optional<std::uint64_t> otherwise) const {
  const auto value = find(name);
  if (!value) {
    if (!otherwise && !*error_) *error_ = Error{.code = Errc::kCorrupt, .message = fmt::format("the config has no {}", name)};
    return otherwise.value_or(1);
  }
  const auto number = whole_number(*value);
  if (number && *number >= 0) return static_cast<std::uint64_t>(*number);
  reject(name, *value, "a whole number");
  return 1;
}

double TextConfig::number(std::string_view name, double otherwise) const {
  const auto value = find(name);
  if (!value) return otherwise;
  double number = 0;
  if (value->get(number) == simdjson::SUCCESS) return number;
  reject(name, *value, "a number");
  return otherwise;
}

bool TextConfig::flag(std::string_view name, bool otherwise) const {
  const auto value = find(name);
  bool flag = otherwise;
  if (value && value->get(flag) != simdjson::SUCCESS) reject(name, *value, "true or false");
  return flag;
}

std::optional<std::string> TextConfig::text(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  std::string_view text;
  if (value->get(text) == simdjson::SUCCESS) return std::string(text);
  reject(name, *value, "a string");
  return std::nullopt;
}

std::vector<std::string> TextConfig::texts(std::string_view name) const {
  std::vector<std::string> found;
  const auto value = find(name);
  if (!value) return found;
  array values;
  if (value->get(values) != simdjson::SUCCESS) {
    reject(name, *value, "a list of strings");
    return found;
  }
  for (const element each : values) {
    std::string_view text;
    if (each.get(text) != simdjson::SUCCESS) reject(name, each, "a string");
    found.emplace_back(text);
  }
  return found;
}

std::vector<std::uint64_t> TextConfig::wholes(std::string_view name) const {
  std::vector<std::uint64_t> found;
  const auto value = find(name);
  if (!value) return found;
  array values;
  if (value->get(values) != simdjson::SUCCESS) {
    reject(name, *value, "a list of numbers");
    return found;
  }
  for (const element each : values) {
    const auto number = whole_number(each);
    if (!number || *number < 0) reject(name, each, "a whole number");
    found.push_back(static_cast<std::uint64_t>(number.value_or(0)));
  }
  return found;
}

std::optional<TextConfig> TextConfig::section(std::string_view name) const {
  const auto value = find(name);
  if (!value) return std::nullopt;
  object section;
  if (value->get(section) == simdjson::SUCCESS) return TextConfig({section}, error_);
  reject(name, *value, "an object");
  return std::nullopt;
}

}  // namespace ballast
