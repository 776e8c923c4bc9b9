#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "scheme/bitsandbytes/decoder.h"
#include "scheme/bitsandbytes/quant_state.h"
#include "scheme/layer_reader.h"
#include "scheme/packed_config.h"

namespace ballast {
namespace {

constexpr std::string_view kName = "bitsandbytes";
constexpr std::string_view kInt8Scales = "SCB";
constexpr std::string_view kWeight = "weight";

struct StateName {
  std::string_view suffix;
  std::string_view type;
};
constexpr std::array kStates{
    StateName{.suffix = ".quant_state.bitsandbytes__nf4", .type = "nf4"},
    StateName{.suffix = ".quant_state.bitsandbytes__fp4", .type = "fp4"},
};

const StateName* state_of(std::string_view name) {
  const auto* const found = std::ranges::find_if(kStates, [&](const StateName& state) { return name.ends_with(state.suffix); });
  return found == kStates.end() ? nullptr : found;
}

// A tensor that says how others are stored, and its bytes.
struct Description {
  const TensorInfo* tensor;
  std::string bytes;
};

// Reads them all at once: there are hundreds, and they may be on a server.
Result<void> read_all(const Model& model, std::vector<Description>& descriptions) {
  for (std::uint32_t file = 0; file < model.files().size(); ++file) {
    std::vector<Range> ranges;
    for (Description& each : descriptions) {
      if (each.tensor->file != file) continue;
      each.bytes.resize(each.tensor->bytes());
      ranges.push_back(
          {.offset = model.files()[file].data_start + each.tensor->begin, .out = std::as_writable_bytes(std::span(each.bytes))});
    }
    if (ranges.empty()) continue;
    if (auto read = ModelAccess::source(model, file).read_ranges(ranges); !read) {
      return fail_at(escape(model.files()[file].path), read.error());
    }
  }
  return {};
}

class BitsAndBytesFinder {
 public:
  explicit BitsAndBytesFinder(const Model& model) : model_(model) {}

  Result<Layers> run() {
    std::vector<Description> formats;
    std::vector<Description> states;
    for (const TensorInfo& tensor : model_.tensors()) {
      if (state_of(tensor.name) != nullptr) states.push_back({.tensor = &tensor, .bytes = {}});
      TRY(check_state(tensor));
      if (!is_int8_scales(tensor)) continue;
      TRY(add_int8(tensor));
      if (const TensorInfo* const format = find_sibling(model_, tensor.name, kInt8Scales, "weight_format")) {
        TRY(check_dtype(model_, *format, {DType::kU8}));
        if (format->elements() != 1)
          return fail_tensor(model_, *format, Errc::kCorrupt, "shape is {}, expected []", to_string(format->shape));
        formats.push_back({.tensor = format, .bytes = {}});
      }
    }
    for (const Description& state : states) TRY(check_text(*state.tensor));
    TRY(read_all(model_, formats));
    for (const Description& format : formats) TRY(check_format(format));
    TRY(read_all(model_, states));
    for (const Description& state : states) TRY(add_four_bit(state));
    if (found_.layers.empty()) return std::move(found_);
    for (const TensorInfo& tensor : model_.tensors()) TRY(check_has_scales(tensor));
    return std::move(found_);
  }

 private:
  // Scales of blocks mean nothing without a state.
  Result<void> check_state(const TensorInfo& tensor) const {
    constexpr std::string_view kScales = ".absmax";
    if (find_sibling(model_, tensor.name, kScales, "") == nullptr) return {};
    for (const StateName& state : kStates) {
      if (find_sibling(model_, tensor.name, kScales, state.suffix) != nullptr) return {};
    }
    const std::string_view codes = tensor.name.substr(0, tensor.name.size() - kScales.size());
    return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(std::string(codes).append(kStates[0].suffix)));
  }

  // In a model that has other such weights.
  Result<void> check_has_scales(const TensorInfo& tensor) const {
    if (tensor.dtype != DType::kI8 || tensor.shape.size() != 2 || !tensor.name.ends_with(kWeight)) return {};
    if (find_sibling(model_, tensor.name, kWeight, kInt8Scales) != nullptr) return {};
    const std::string_view module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    const bool is_four_bit = std::ranges::any_of(
        kStates, [&](const StateName& state) { return find_sibling(model_, tensor.name, "", state.suffix) != nullptr; });
    if (is_four_bit) return {};
    return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(std::string(module).append(kInt8Scales)));
  }

  bool is_int8_scales(const TensorInfo& tensor) const {
    if (!tensor.name.ends_with(kInt8Scales)) return false;
    const TensorInfo* const codes = find_sibling(model_, tensor.name, kInt8Scales, kWeight);
    return codes != nullptr && codes->dtype == DType::kI8;
  }

  Result<void> add_int8(const TensorInfo& scales) {
    const TensorInfo& codes = *find_sibling(model_, scales.name, kInt8Scales, kWeight);
    TRY(check_dtype(model_, scales, {DType::kF32}));
    if (codes.shape.size() != 2 || codes.elements() == 0) {
      return fail_tensor(model_, codes, Errc::kCorrupt, "shape is {}, expected a matrix that is not empty",
                         to_string(codes.shape));
    }
    TRY(check_shape(model_, scales, {codes.shape[0]}, fmt::format("{} is {}", quote(codes.name), to_string(codes.shape))));
    Layer layer{.name = std::string(codes.name),
                .dtype = config_dtype(model_).value_or(DType::kF16),
                .shape = {codes.shape.begin(), codes.shape.end()},
                .rows = codes.shape[0],
                .storage = {.scheme = {}, .mode = "int8", .bits = 8, .group_size = static_cast<unsigned>(codes.shape[1])},
                .parts = {&codes, &scales},
                .decoder = int8_decoder(codes, scales)};
    if (const TensorInfo* const format = find_sibling(model_, scales.name, kInt8Scales, "weight_format")) {
      layer.parts.push_back(format);
    }
    found_.layers.push_back(std::move(layer));
    return {};
  }

  Result<void> check_format(const Description& format) const {
    constexpr std::array<std::string_view, 4> kNames{"row", "col32", "col_turing", "col_ampere"};
    const auto value = static_cast<unsigned char>(format.bytes.front());
    if (value == 0) return {};
    return fail_tensor(model_, *format.tensor, Errc::kUnsupported,
                       "is {} ({}), and Ballast decodes 0 (row) only; save the model with a newer bitsandbytes", value,
                       value < kNames.size() ? kNames[value] : "unknown");
  }

  Result<void> check_text(const TensorInfo& state) const {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 16;
    TRY(check_dtype(model_, state, {DType::kU8}));
    if (state.bytes() <= kMost) return {};
    return fail_tensor(model_, state, Errc::kCorrupt, "has {} bytes, expected at most {}", state.bytes(), kMost);
  }

  // The tensor of a weight whose name has `suffix`; its dtype and number of elements are checked.
  Result<const TensorInfo*> part(const TensorInfo& codes, std::string_view suffix, DType dtype, std::uint64_t elements) const {
    const std::string name = std::string(codes.name).append(suffix);
    const TensorInfo* const found = model_.find(name);
    if (found == nullptr) return fail_tensor(model_, codes, Errc::kCorrupt, "{} is missing", quote(name));
    TRY(check_dtype(model_, *found, {dtype}));
    if (found->elements() == elements) return found;
    return fail_tensor(model_, *found, Errc::kCorrupt, "has {} elements, expected {} for {}", found->elements(), elements,
                       quote(codes.name));
  }

  Result<FourBitTensors> four_bit_tensors(const TensorInfo& codes, const QuantState& state) const {
    constexpr std::uint64_t kMapSize = 16;
    constexpr std::uint64_t kNestedMapSize = 256;
    TRY(check_dtype(model_, codes, {DType::kU8, DType::kI8, DType::kBF16, DType::kF16, DType::kF32}));
    if (codes.bytes() != (state.elements + 1) / 2) {
      return fail_tensor(model_, codes, Errc::kCorrupt, "has {} bytes, expected {} for shape {} in 4 bits", codes.bytes(),
                         (state.elements + 1) / 2, to_string(state.shape));
    }
    const std::uint64_t blocks = (state.elements - 1) / state.block_size + 1;
    FourBitTensors tensors{.codes = &codes};
    tensors.map = TRY(part(codes, ".quant_map", DType::kF32, kMapSize));
    if (state.nested_block_size == 0) {
      tensors.scales = TRY(part(codes, ".absmax", DType::kF32, blocks));
      return tensors;
    }
    tensors.scales = TRY(part(codes, ".absmax", DType::kU8, blocks));
    tensors.nested_map = TRY(part(codes, ".nested_quant_map", DType::kF32, kNestedMapSize));
    tensors.nested_scales = TRY(part(codes, ".nested_absmax", DType::kF32, (blocks - 1) / state.nested_block_size + 1));
    return tensors;
  }

  Result<void> add_four_bit(const Description& description) {
    const TensorInfo& tensor = *description.tensor;
    const StateName& type = *state_of(tensor.name);
    const TensorInfo* const codes = find_sibling(model_, tensor.name, type.suffix, "");
    if (codes == nullptr) {
      const std::string_view name = tensor.name.substr(0, tensor.name.size() - type.suffix.size());
      return fail_tensor(model_, tensor, Errc::kCorrupt, "{} is missing", quote(name));
    }
    const std::string place = fmt::format("{}: tensor {}", escape(model_.files()[tensor.file].path), quote(tensor.name));
    const QuantState state = TRY(parse_quant_state(description.bytes, place, type.type));
    const FourBitTensors tensors = TRY(four_bit_tensors(*codes, state));
    Layer layer{.name = std::string(codes->name),
                .dtype = config_dtype(model_).value_or(state.dtype.value_or(DType::kBF16)),
                .shape = state.shape,
                .rows = state.elements / state.shape.back(),
                .storage = {.scheme = {}, .mode = state.type, .bits = 4, .group_size = static_cast<unsigned>(state.block_size)},
                .parts = {codes, tensors.scales, tensors.map, &tensor},
                .decoder = four_bit_decoder(tensors, state)};
    if (tensors.nested_map != nullptr) layer.parts.insert(layer.parts.end(), {tensors.nested_map, tensors.nested_scales});
    found_.layers.push_back(std::move(layer));
    return {};
  }

  const Model& model_;
  Layers found_;
};

// The config must not say that the weights are stored in another way.
Result<void> check_declared(const Model& model, const Declared& declared, const Layers& found) {
  const Section section = TRY(Section::parse(declared));
  const bool is_four = TRY(section.flag("load_in_4bit")).value_or(false);
  const bool is_eight = TRY(section.flag("load_in_8bit")).value_or(false);
  const auto type = TRY(section.text("bnb_4bit_quant_type"));
  for (const Layer& layer : found.layers) {
    const TensorInfo& codes = *layer.parts.front();
    if (is_four != is_eight && (layer.storage.bits == 4) != is_four) {
      return fail_tensor(model, codes, Errc::kCorrupt, "is stored as {}, but {}: {} is true", layer.storage.mode, section.place(),
                         is_four ? "load_in_4bit" : "load_in_8bit");
    }
    if (layer.storage.bits == 4 && type && *type != layer.storage.mode) {
      return fail_tensor(model, codes, Errc::kCorrupt, "is stored as {}, but {}: bnb_4bit_quant_type is {}", layer.storage.mode,
                         section.place(), quote(*type));
    }
  }
  return {};
}

// Codes of bitsandbytes: its tensors describe themselves, so that a shard alone can be decoded.
class BitsAndBytesScheme final : public LayerScheme {
 public:
  std::string_view name() const override { return kName; }

  Result<std::optional<Layers>> find(const Model& model, std::span<const Declared> declared) const override {
    const bool is_declared = !declared.empty() && declared.front().method == kName;
    if (!declared.empty() && !is_declared) return std::nullopt;
    auto found = TRY(BitsAndBytesFinder(model).run());
    if (found.layers.empty()) {
      if (!is_declared) return std::nullopt;
      return fail(Errc::kCorrupt,
                  "{}: {} says '{}', but no tensor is named *.SCB or *.quant_state.*; remove the section if the weights are not "
                  "quantized",
                  escape(model.path()), declared.front().place, kName);
    }
    if (is_declared) TRY(check_declared(model, declared.front(), found));
    TRY(refuse_conv1d(model));
    return found;
  }
};

}  // namespace

const LayerScheme& bitsandbytes_scheme() {
  static const BitsAndBytesScheme scheme;
  return scheme;
}

}  // namespace ballast
