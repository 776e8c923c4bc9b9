#include <algorithm>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <ballast/quantize_config.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "plan/config_fields.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr std::size_t kMostBytes = 1'000'000;

using List = std::vector<std::string>;
using Pairs = std::map<std::string, std::string>;

std::string line_of(const YAML::Mark& mark) { return fmt::format("line {}", mark.line + 1); }

// Thrown through the parser.
struct Rejected {
  Error error;
};

// Handles the parser's events without building a tree. Nothing nests deeper than a field's list and aliases are rejected, so that
// time and memory are linear in the size of the document.
class FieldsReader final : public YAML::EventHandler {
 public:
  ConfigFields fields;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) reject(mark, "a second YAML document begins here; give one");
    started_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_node(mark, {}, anchor);
    if (depth_ == kInDocument) return;
    if (depth_ == kInFields && field_ != nullptr) {
      value_ = field_->empty_value();
      return finish_field();
    }
    take(mark, {});
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { check_node(mark, {}, anchor); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& text) override {
    check_node(mark, tag, anchor);
    take(mark, text);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_node(mark, tag, anchor);
    open(mark, List());
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    check_node(mark, tag, anchor);
    open(mark, Pairs());
  }
  void OnMapEnd() override { close(); }

 private:
  enum Depth { kInDocument, kInFields, kInValue };

  template <class... Args>
  [[noreturn]] static void reject(const YAML::Mark& mark, fmt::format_string<Args...> format, Args&&... args) {
    throw Rejected{fail(Errc::kInvalidArgument, format, std::forward<Args>(args)...).error().at(line_of(mark))};
  }

  static void check_node(const YAML::Mark& mark, std::string_view tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) reject(mark, "anchors and aliases are not supported");
    const bool untagged = tag.empty() || tag == "?" || tag == "!";  // yaml-cpp's tags of plain and quoted scalars
    if (!untagged) reject(mark, "tags such as {} are not supported", quote(tag));
  }

  void open(const YAML::Mark& mark, ConfigValue value) {
    const std::string_view kind = std::holds_alternative<List>(value) ? "a list" : "a mapping";
    if (depth_ == kInDocument) {
      if (!std::holds_alternative<Pairs>(value))
        reject(mark, "the document is {}, it must be a mapping of settings such as bit_width: 4", kind);
      depth_ = kInFields;
      return;
    }
    if (depth_ == kInFields && field_ == nullptr) reject(mark, "expected the name of a setting, found {}", kind);
    if (depth_ == kInValue)
      reject(mark, "{} contains {}, but values cannot be nested; is a bracket not closed?", field_->name, kind);
    depth_ = kInValue;
    value_ = std::move(value);
  }

  void close() {
    if (depth_ == kInValue) {
      depth_ = kInFields;
      return finish_field();
    }
    depth_ = kInDocument;
  }

  void take(const YAML::Mark& mark, const std::string& text) {
    if (depth_ == kInDocument)
      reject(mark, "the document is {}, it must be a mapping of settings such as bit_width: 4", quote(text));
    if (depth_ == kInFields) {
      if (field_ == nullptr) return begin_field(mark, text);
      value_ = text;
      return finish_field();
    }
    if (auto* const list = std::get_if<List>(&value_)) {
      list->push_back(text);
      return;
    }
    auto& pairs = std::get<Pairs>(value_);
    if (pair_ == nullptr) {
      const auto [pair, is_new] = pairs.try_emplace(text);
      if (!is_new) reject(mark, "{} names {} twice", field_->name, quote(text));
      pair_ = &pair->second;
      return;
    }
    *pair_ = text;
    pair_ = nullptr;
  }

  void begin_field(const YAML::Mark& mark, const std::string& name) {
    const auto field = find_config_field(name);
    if (!field) throw Rejected{Error(field.error()).at(line_of(mark))};
    const auto [first, is_new] = marks_.try_emplace(name, mark);
    if (!is_new) reject(mark, "{} is set twice, first in {}", name, line_of(first->second));
    field_ = *field;
  }

  void finish_field() {
    const ConfigField& field = *field_;
    field_ = nullptr;
    QuantizeConfig scratch;
    if (const auto set = field.set(field.name, value_, scratch); !set) {
      throw Rejected{Error(set.error()).at(line_of(marks_.find(field.name)->second))};
    }
    fields.emplace(field.name, std::move(value_));
  }

  bool started_ = false;
  Depth depth_ = kInDocument;
  const ConfigField* field_ = nullptr;                    // whose value comes next, or is being read
  std::map<std::string, YAML::Mark, std::less<>> marks_;  // of all fields so far
  ConfigValue value_;
  std::string* pair_ = nullptr;  // whose value comes next
};

// yaml-cpp takes some control characters for other encodings, and one for the end of the text.
Result<void> check_text(std::string_view yaml) {
  if (yaml.size() > kMostBytes) {
    return fail(Errc::kInvalidArgument, "the document has {} bytes, the limit is {}", yaml.size(), kMostBytes);
  }
  if (!is_utf8(yaml)) return fail(Errc::kInvalidArgument, "the document is not UTF-8");
  const auto is_control = [](unsigned char c) { return c < ' ' && c != '\t' && c != '\n' && c != '\r'; };
  const auto control = std::ranges::find_if(yaml, is_control);
  if (control == yaml.end()) return {};
  return fail(Errc::kInvalidArgument, "line {}: control character {} is not allowed", std::count(yaml.begin(), control, '\n') + 1,
              quote({control, control + 1}));
}

// A JSON string is a YAML string. Quoted, because a name can look like any YAML value.
std::string yaml_string(std::string_view text) {
  std::string out;
  append_json_string(text, out);
  return out;
}

void append(std::string& out, const std::string& word) { out += word.empty() ? " null" : " " + word; }

void append(std::string& out, const List& list) {
  if (list.empty()) out += " []";
  for (const std::string& entry : list) out += "\n  - " + yaml_string(entry);
}

void append(std::string& out, const Pairs& pairs) {
  constexpr std::size_t kLongestKey = 1000;  // YAML limits implicit keys to 1024 characters
  if (pairs.empty()) out += " {}";
  for (const auto& [name, value] : pairs) {
    const std::string key = yaml_string(name);
    out += key.size() > kLongestKey ? fmt::format("\n  ? {}\n  : {}", key, value) : fmt::format("\n  {}: {}", key, value);
  }
}

void append(std::string& out, const ConfigField& field, const QuantizeConfig& config) {
  out += fmt::format("{}:", field.name);
  std::visit([&](const auto& value) { append(out, value); }, field.get(config));
  out += '\n';
}

}  // namespace

Result<ConfigFields> parse_config_fields(std::string_view yaml) {
  if (const auto checked = check_text(yaml); !checked) return std::unexpected(checked.error());
  FieldsReader reader;
  try {
    std::istringstream in{fmt::format("{}\n...\n", yaml)};  // without the end marker, an unclosed quote is accepted
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(reader)) {
    }
  } catch (const Rejected& rejected) {
    return std::unexpected(rejected.error);
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) return fail(Errc::kInvalidArgument, "{}", escape(error.msg));
    return fail(Errc::kInvalidArgument, "{}: {}", line_of(error.mark), escape(error.msg));
  }
  return std::move(reader.fields);
}

Result<ConfigFields> read_config_fields(const std::string& path, const std::function<bool()>& stop) {
  const auto text = read_text(path, {.stop = stop});
  auto fields = text ? parse_config_fields(*text) : std::unexpected(text.error());
  if (!fields) return fail_at(shown(path), fields.error());
  return fields;
}

Result<QuantizeConfig> QuantizeConfig::from_yaml(const std::string& path) {
  const ConfigFields fields = TRY(read_config_fields(path));
  auto config = make_quantize_config(std::span(&fields, 1));
  if (!config) return fail_at(shown(path), config.error());
  return config;
}

std::string to_yaml(const QuantizeConfig& config) {
  std::string out;
  for (const ConfigField& field : config_fields()) append(out, field, config);
  return out;
}

std::string recorded_yaml(const QuantizeConfig& config) {
  std::string out;
  for (const ConfigField& field : config_fields()) {
    if (field.is_recorded(config)) append(out, field, config);
  }
  return out;
}

}  // namespace ballast
