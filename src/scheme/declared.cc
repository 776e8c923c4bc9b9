#include "scheme/declared.h"

#include <algorithm>
#include <array>
#include <utility>

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

struct DeclaringFile {
  std::string_view name;
  std::string_view section;  // the member that describes the quantization; empty: the root
  std::string_view key;      // a member that only a quantizer's file has, unless the file names the quantizer
  std::string_view method;
};

// transformers.js has a file named quantize_config.json, too.
constexpr std::array kSideFiles{
    DeclaringFile{.name = kQuantizationConfigFile, .section = {}, .key = {}, .method = {}},
    DeclaringFile{.name = kHfQuantConfigFile, .section = "quantization", .key = "quant_algo", .method = "modelopt"},
    DeclaringFile{.name = kQuantizeConfigFile, .section = {}, .key = "bits", .method = "gptq"},
    DeclaringFile{.name = kQuantConfigFile, .section = {}, .key = "w_bit", .method = "awq"},
    DeclaringFile{.name = kMistralParamsFile, .section = "quantization", .key = "qformat_weight", .method = "fp8"},
};

// A section that names its quantizer, or whose quantizer is known to be `otherwise` because of the member `key`.
std::optional<Declared> read_section(object section, const std::string& file, const std::string& place, std::string_view key = {},
                                     std::string_view otherwise = {}) {
  Declared declared{.method = {}, .place = place, .evidence = {}, .json = simdjson::to_string(section)};
  const auto method = section["quant_method"];
  if (method.error() == simdjson::SUCCESS && !method.is_null()) {
    std::string_view text;
    if (method.get(text) == simdjson::SUCCESS) declared.method = lowercase(text);
    declared.evidence = fmt::format("{}: quant_method {}", file, describe(method.value_unsafe()));
    return declared;
  }
  const auto value = section[key];
  bool is_set = true;
  if (key.empty() || value.error() != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  if (value.get(is_set) == simdjson::SUCCESS && !is_set) return std::nullopt;
  declared.method = otherwise;
  declared.evidence = fmt::format("{}: {} {}", file, key, describe(value.value_unsafe()));
  return declared;
}

void add_from_scope(std::vector<Declared>& found, object scope, const std::string& place) {
  object section;
  if (scope["quantization_config"].get(section) == simdjson::SUCCESS) {
    for (const std::string_view key : {"load_in_4bit", "load_in_8bit"}) {
      auto declared = read_section(section, place, place + ": quantization_config", key, "bitsandbytes");
      if (!declared) continue;
      found.push_back(std::move(*declared));
      break;
    }
  }
  constexpr std::string_view kCompression = "compression_config";
  if (scope[kCompression].get(section) != simdjson::SUCCESS || section.size() == 0) return;
  const std::string at = fmt::format("{}: {}", place, kCompression);
  auto declared = read_section(section, place, at);
  if (!declared)
    declared = Declared{.method = "compressed-tensors", .place = at, .evidence = at, .json = simdjson::to_string(section)};
  found.push_back(std::move(*declared));
}

// In the config and its sections, such as text_config.
Result<void> add_from_config(std::vector<Declared>& found, const ModelConfig& config) {
  simdjson::dom::parser parser;
  const element document = TRY(parse_json(parser, config.json));
  simdjson::dom::object root;
  if (document.get(root) != simdjson::SUCCESS) return {};
  add_from_scope(found, root, std::string(kConfigFile));
  for (const auto [key, value] : root) {
    object scope;
    if (key == "quantization_config" || key == "compression_config" || value.get(scope) != simdjson::SUCCESS) continue;
    add_from_scope(found, scope, fmt::format("{}: {}", kConfigFile, escape(key)));
  }
  return {};
}

Result<void> add_from_side_file(std::vector<Declared>& found, const std::string& text, const DeclaringFile& file) {
  simdjson::dom::parser parser;
  const element document = TRY(parse_json(parser, text));
  simdjson::dom::object root;
  if (document.get(root) != simdjson::SUCCESS) return {};
  object section = root;
  if (!file.section.empty() && root[file.section].get(section) != simdjson::SUCCESS) section = root;
  const std::string name(file.name);
  auto declared = read_section(section, name, name, file.key, file.method);
  if (declared) found.push_back(std::move(*declared));
  return {};
}

// Methods of one quantizer have one name: those of AutoRound, which stores weights as GPTQ and AWQ do, count as theirs.
std::string_view quantizer_of(std::string_view method) {
  constexpr std::array<std::string_view, 5> kPacked{"gptq", "awq", "auto-round", "auto_round", "intel/auto-round"};
  const auto begins = [&](std::string_view name) { return method.starts_with(name); };
  if (std::ranges::any_of(kPacked, begins)) return kPacked.front();
  return begins("modelopt") ? "modelopt" : method;
}

}  // namespace

bool may_hold_codes(DType dtype) {
  return (bits(dtype) <= 8 && dtype != DType::kBool) || dtype == DType::kI16 || dtype == DType::kI32;
}

bool holds_codes(const TensorInfo& tensor) {
  return tensor.shape.size() >= 2 && (may_hold_codes(tensor.dtype) || tensor.dtype == DType::kU32);
}

Result<std::vector<Declared>> find_declared(const Model& model) {
  std::vector<Declared> found;
  if (model.config()) TRY(add_from_config(found, *model.config()));
  const Folder* const folder = ModelAccess::folder(model);
  const auto may_be_codes = [](const TensorInfo& tensor) { return tensor.shape.size() >= 2 && may_hold_codes(tensor.dtype); };
  // If all weights are plain floats, such a file is left over from other weights.
  if (folder == nullptr || std::ranges::none_of(model.tensors(), may_be_codes)) return found;
  for (const DeclaringFile& file : kSideFiles) {
    const auto text = TRY(folder->read_text(file.name));
    if (!text) continue;
    if (auto added = add_from_side_file(found, *text, file); !added) {
      return fail_at(shown(join_path(folder->path(), file.name)), added.error());
    }
  }
  return found;
}

std::string describe_contradiction(std::span<const Declared> declared) {
  for (const Declared& other : declared) {
    const Declared& first = declared.front();
    const bool is_of_others = other.place.starts_with(kMistralParamsFile);  // it describes consolidated.safetensors
    if (is_of_others || quantizer_of(first.method) == quantizer_of(other.method)) continue;
    return fmt::format("{}, but {}; remove the one that does not belong to these weights", first.evidence, other.evidence);
  }
  return {};
}

std::optional<DType> config_dtype(const Model& model) {
  if (!model.config()) return std::nullopt;
  simdjson::dom::parser parser;
  const auto document = parse_json(parser, model.config()->json);
  if (!document) return std::nullopt;
  for (const std::string_view scope : {"", "/text_config"}) {
    for (const std::string_view key : {"/dtype", "/torch_dtype"}) {
      std::string_view text;
      if (document->at_pointer(std::string(scope).append(key)).get(text) != simdjson::SUCCESS) continue;
      if (text == "bfloat16") return DType::kBF16;
      if (text == "float16" || text == "half") return DType::kF16;
      if (text == "float32" || text == "float") return DType::kF32;
    }
  }
  return std::nullopt;
}

Result<Section> Section::parse(const Declared& declared) {
  auto parser = std::make_shared<simdjson::dom::parser>();
  const element document = TRY(parse_json(*parser, declared.json));
  simdjson::dom::object root;
  if (document.get(root) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "{}: not an object", declared.place);
  return Section(std::move(parser), root, declared.place);
}

std::optional<element> Section::find(std::string_view key) const {
  const auto value = object_[key];
  if (value.error() != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value.value_unsafe();
}

std::unexpected<Error> Section::wrong(std::string_view key, std::string_view expected) const {
  const auto value = find(key);
  return fail(Errc::kCorrupt, "{}: {} is {}, expected {}", place_, escape(key), value ? describe(*value) : "missing", expected);
}

Result<std::optional<std::int64_t>> Section::number(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  const auto number = whole_number(*value);
  if (!number) return wrong(key, "a whole number");
  return number;
}

Result<std::optional<bool>> Section::flag(std::string_view key) const {
  const auto value = find(key);
  bool flag = false;
  if (!value) return std::nullopt;
  if (value->get(flag) != simdjson::SUCCESS) return wrong(key, "true or false");
  return flag;
}

Result<std::optional<std::string_view>> Section::text(std::string_view key) const {
  const auto value = find(key);
  std::string_view text;
  if (!value) return std::nullopt;
  if (value->get(text) != simdjson::SUCCESS) return wrong(key, "a string");
  return text;
}

Result<std::optional<std::vector<std::int64_t>>> Section::numbers(std::string_view key) const {
  const auto value = find(key);
  if (!value) return std::nullopt;
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return wrong(key, "a list of whole numbers");
  std::vector<std::int64_t> numbers;
  for (const element item : list) {
    const auto number = whole_number(item);
    if (!number) return wrong(key, "a list of whole numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::vector<std::string_view>> Section::texts(std::string_view key) const {
  const auto value = find(key);
  std::vector<std::string_view> texts;
  if (!value) return texts;
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return wrong(key, "a list of strings");
  for (const element item : list) {
    if (item.get(texts.emplace_back()) != simdjson::SUCCESS) return wrong(key, "a list of strings");
  }
  return texts;
}

Result<std::optional<Section>> Section::section(std::string_view key) const {
  const auto value = find(key);
  simdjson::dom::object inner;
  if (!value) return std::nullopt;
  if (value->get(inner) != simdjson::SUCCESS) return wrong(key, "an object");
  return Section(parser_, inner, fmt::format("{}: {}", place_, escape(key)));
}

std::vector<std::pair<std::string_view, Section>> Section::sections() const {
  std::vector<std::pair<std::string_view, Section>> found;
  for (const auto [key, value] : object_) {
    simdjson::dom::object inner;
    if (value.get(inner) != simdjson::SUCCESS) continue;
    found.emplace_back(key, Section(parser_, inner, fmt::format("{}: {}", place_, escape(key))));
  }
  return found;
}

}  // namespace ballast
