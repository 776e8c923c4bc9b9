#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

#include <ballast/error.h>

namespace ballast {

// The settings of the language model in a config.json: those of `text_config`, if there is one, else the root's. The first value
// of a wrong type is recorded, and the default used.
class TextConfig {
 public:
  static Result<TextConfig> parse(simdjson::dom::parser& parser, std::string_view json);

  std::string model_type() const { return text("model_type").value_or(""); }
  bool has(std::string_view name) const { return find(name).has_value(); }
  bool mentions(std::string_view name) const;  // perhaps as null, which all else takes for absent
  std::uint64_t whole(std::string_view name, std::optional<std::uint64_t> otherwise) const;
  double number(std::string_view name, double otherwise) const;
  bool flag(std::string_view name, bool otherwise) const;
  std::optional<std::string> text(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<std::uint64_t> wholes(std::string_view name) const;
  // An object as settings of its own; empty if it is absent or null.
  std::optional<TextConfig> section(std::string_view name) const;

  const std::optional<Error>& error() const { return *error_; }

 private:
  TextConfig(std::vector<simdjson::dom::object> scopes, std::shared_ptr<std::optional<Error>> error)
      : scopes_(std::move(scopes)), error_(std::move(error)) {}
  std::optional<simdjson::dom::element> find(std::string_view name) const;
  void reject(std::string_view name, simdjson::dom::element value, std::string_view expected) const;

  std::vector<simdjson::dom::object> scopes_;
  std::shared_ptr<std::optional<Error>> error_;  // shared with the sections
};

}  // namespace ballast
