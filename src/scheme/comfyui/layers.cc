#include "scheme/comfyui/layers.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "scheme/declared.h"
#include "scheme/layer.h"

namespace ballast {
namespace {

using simdjson::dom::element;

constexpr std::array<std::string_view, 5> kKnownKeys{"format", "full_precision_matrix_mult", "group_size", "orig_dtype",
                                                     "orig_shape"};

// The metadata may name layers without the prefix that their tensors have.
constexpr std::array<std::string_view, 3> kPrefixes{"", "model.diffusion_model.", "diffusion_model."};

// Whether a setting says nothing: null, false, {} or [].
bool is_unset(element value) {
  bool flag = true;
  simdjson::dom::object object;
  simdjson::dom::array array;
  if (value.get(flag) == simdjson::SUCCESS) return !flag;
  if (value.get(object) == simdjson::SUCCESS) return object.size() == 0;
  if (value.get(array) == simdjson::SUCCESS) return array.size() == 0;
  return value.is_null();
}

Result<Section> parse_section(const std::string& place, std::string text) {
  auto section = Section::parse({.method = {}, .place = place, .json = std::move(text)});
  if (!section && !section.error().message.starts_with(place)) return fail_at(place, section.error());
  return section;
}

// Settings such as a rotation of the columns change values without a trace in the tensors, so unknown ones are refused.
Result<void> read_settings(const Section& section, ComfyLayer& layer) {
  const auto format = TRY(section.text("format"));
  if (!format) return section.wrong("format", "a string");
  layer.format = *format;
  layer.group_size = TRY(section.number("group_size"));
  if (const auto shape = TRY(section.numbers("orig_shape"))) {
    if (shape->size() != 2 || std::ranges::any_of(*shape, [](std::int64_t dim) { return dim < 1; })) {
      return section.wrong("orig_shape", "two positive numbers");
    }
    layer.shape = {static_cast<std::uint64_t>((*shape)[0]), static_cast<std::uint64_t>((*shape)[1])};
  }
  for (const auto [key, value] : section.object()) {
    if (std::ranges::find(kKnownKeys, key) != kKnownKeys.end() || is_unset(value)) continue;
    return fail(Errc::kUnsupported, "{}: {} is {}: Ballast does not know this setting, which may change the weights",
                section.place(), escape(key), describe(value));
  }
  return {};
}

class ComfyDescriptions {
 public:
  explicit ComfyDescriptions(const Model& model) : model_(model) {}

  Result<std::vector<ComfyLayer>> run() {
    for (const ModelFile& file : model_.files()) {
      const auto text = file.metadata.find(kComfyMetadata);
      if (text != file.metadata.end()) TRY(add_metadata(file, text->second));
    }
    TRY(add_tensors());
    std::vector<ComfyLayer> layers;
    for (auto& entry : layers_) layers.push_back(std::move(entry.second));
    return layers;
  }

 private:
  Result<void> add_metadata(const ModelFile& file, const std::string& text) {
    const Section root = TRY(parse_section(fmt::format("{}: metadata '{}'", escape(file.path), kComfyMetadata), text));
    constexpr std::string_view kVersion = "format_version";
    const auto version = TRY(root.text(kVersion));
    if (version && *version != "1.0") {
      return fail(Errc::kUnsupported, "{}: {} is {}, expected '1.0'", root.place(), kVersion, quote(*version));
    }
    const auto layers = TRY(root.section("layers"));
    if (!layers) return root.wrong("layers", "an object");
    for (const auto [name, value] : layers->object()) {
      ComfyLayer layer;
      layer.place = fmt::format("{}: {}", layers->place(), escape(name));
      std::string_view format;
      if (value.get(format) == simdjson::SUCCESS) {
        layer.format = format;
      } else {
        TRY(read_settings(TRY(parse_section(layer.place, simdjson::to_string(value))), layer));
      }
      layer.name = TRY(find_module(name, layer.place));
      TRY(add(std::move(layer)));
    }
    return {};
  }

  // The name that the layer's tensors have.
  Result<std::string> find_module(std::string_view name, const std::string& place) const {
    for (const std::string_view prefix : kPrefixes) {
      std::string module = std::string(prefix).append(name);
      if (model_.has(module + ".weight")) return module;
    }
    return fail(Errc::kCorrupt, "{}: {} is missing", place, quote(std::string(name) + ".weight"));
  }

  Result<void> add_tensors() {
    std::vector<const TensorInfo*> tensors;
    for (const TensorInfo& tensor : model_.tensors()) {
      if (!tensor.name.ends_with(kComfyQuant)) continue;
      constexpr std::uint64_t kLargest = 65536;
      TRY(check_dtype(model_, tensor, {DType::kU8}));
      if (tensor.bytes() > kLargest) {
        return fail_tensor(model_, tensor, Errc::kCorrupt, "has {} bytes, expected the JSON of one layer, at most {}",
                           tensor.bytes(), kLargest);
      }
      tensors.push_back(&tensor);
    }
    std::vector<std::string> texts = TRY(read(tensors));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorInfo& tensor = *tensors[i];
      ComfyLayer layer;
      layer.place = fmt::format("{}: tensor {}", escape(model_.files()[tensor.file].path), quote(tensor.name));
      layer.description = &tensor;
      TRY(read_settings(TRY(parse_section(layer.place, std::move(texts[i]))), layer));
      layer.name = tensor.name.substr(0, tensor.name.size() - kComfyQuant.size());
      if (!model_.has(layer.name + ".weight")) {
        return fail(Errc::kCorrupt, "{}: {} is missing", layer.place, quote(layer.name + ".weight"));
      }
      TRY(add(std::move(layer)));
    }
    return {};
  }

  // All bytes of small tensors, which are close together in most files.
  Result<std::vector<std::string>> read(std::span<const TensorInfo* const> tensors) const {
    std::vector<std::string> texts(tensors.size());
    std::vector<std::vector<Range>> ranges(model_.files().size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      texts[i].resize(tensors[i]->bytes());
      ranges[tensors[i]->file].push_back(
          {.offset = ModelAccess::position(model_, *tensors[i]), .out = std::as_writable_bytes(std::span(texts[i]))});
    }
    for (std::uint32_t file = 0; file < ranges.size(); ++file) {
      if (auto done = ModelAccess::source(model_, file).read_ranges(ranges[file]); !done) {
        return fail_at(escape(model_.files()[file].path), done.error());
      }
    }
    return texts;
  }

  Result<void> add(ComfyLayer layer) {
    const auto [at, is_new] = layers_.try_emplace(layer.name, layer);
    if (is_new) return {};
    ComfyLayer& first = at->second;
    if (first.format != layer.format ||
        first.shape.value_or(layer.shape.value_or(kNone)) != layer.shape.value_or(first.shape.value_or(kNone))) {
      return fail(Errc::kCorrupt, "{}: format is {}, but {} gives {}", layer.place, describe_format(layer), first.place,
                  describe_format(first));
    }
    if (!first.shape) first.shape = layer.shape;
    if (first.description == nullptr) first.description = layer.description;
    return {};
  }

  static constexpr std::array<std::uint64_t, 2> kNone{0, 0};
  static std::string describe_format(const ComfyLayer& layer) {
    return layer.shape ? fmt::format("{} of shape {}", quote(layer.format), to_string(*layer.shape)) : quote(layer.format);
  }

  const Model& model_;
  std::map<std::string, ComfyLayer> layers_;
};

}  // namespace

Result<std::vector<ComfyLayer>> find_comfy_layers(const Model& model) { return ComfyDescriptions(model).run(); }

}  // namespace ballast
