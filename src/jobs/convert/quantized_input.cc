#include "jobs/convert/quantized_input.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include <ballast/weights.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/merge.h"
#include "model/state.h"
#include "scheme/comfyui/layers.h"
#include "scheme/declared.h"
#include "scheme/decoded_source.h"
#include "scheme/foreign.h"
#include "scheme/layer_reader.h"
#include "scheme/mlx/config.h"
#include "scheme/mlx/layers.h"
#include "scheme/mlx/side_files.h"
#include "source/uri.h"

namespace ballast {
namespace {

// Side files refer to weights by name, and are copied unchanged.
Result<void> check_side_files(const Model& model, const Selection& selection) {
  bool is_same = selection.targets.size() == model.tensors().size();
  for (std::size_t i = 0; i < selection.targets.size(); ++i) is_same &= selection.targets[i].name == selection.sources[i]->name;
  for (const SideFileKind& kind : {kTimeAware, kEqualization}) {
    const auto file = TRY(open_side_file(model, kind));
    if (!file || is_same) continue;
    return fail(Errc::kUnsupported,
                "{}: tensors cannot be left out or renamed, because {} refers to them; dequantize the model first",
                shown(model.directory()), kind.file);
  }
  return {};
}

bool has_new_dtypes(const ConvertOptions& options) { return options.dtype || !options.dtype_rules.empty(); }

// Whether names, shapes and metadata alone describe the weights. Otherwise it takes a config, which is in a directory.
Result<bool> describes_itself(const Model& model) {
  const auto mlx = mlx_quantization_of(model);
  return mlx && !*mlx && TRY(find_declared(model)).empty();
}

Result<bool> keeps_codes(const Model& model, const std::string& path, const ConvertOptions& options) {
  if (has_new_dtypes(options) || options.sink.format == Format::kMlxJson || path.ends_with(kMlxJsonSuffix)) return false;
  return is_single_file(path) ? describes_itself(model) : true;
}

// The tensors of each quantized weight.
Result<std::vector<std::vector<const TensorInfo*>>> find_parts(const Model& model) {
  std::vector<std::vector<const TensorInfo*>> parts;
  const auto config = mlx_quantization_of(model);
  if (!config && config.error().code != Errc::kUnsupported) return std::unexpected(config.error());
  if (config && *config) {
    for (const MlxLayer& layer : TRY(find_mlx_layers(model, **config))) {
      parts.push_back({layer.packed, layer.scales});
      if (layer.biases != nullptr) parts.back().push_back(layer.biases);
    }
    return parts;
  }
  const auto found = TRY(find_layers(model));
  if (!found) return parts;
  for (const Layer& layer : found->layers) parts.push_back(layer.parts);
  return parts;
}

// A dtype that values can be decoded to, and rounded from to this one.
DType wide(DType dtype) { return bits(dtype) >= 16 ? dtype : DType::kF32; }

// Values are rounded once: what convert_model() will round again is F32.
MergedDTypes merged_dtypes(std::optional<DType> decoded, const ConvertOptions& options) {
  return {.decoded = decoded, .changed = [options](const Weight& weight) {
            const DType own = weight.is_quantized() ? decoded_dtype(weight) : weight.dtype;
            const DType target = float_target(weight.name, own, options);
            return target == own || (info(target).kind == NumberKind::kFloat && bits(target) >= 16) ? target : DType::kF32;
          }};
}

}  // namespace

Result<void> check_codes(const Model& model, const Selection& selection, const std::string& path, const ConvertOptions& options) {
  if (has_new_dtypes(options)) return refuse_codes(model);
  const auto layers = find_parts(model);
  if (!layers && layers.error().code == Errc::kUnsupported) return {};
  if (!layers) return std::unexpected(layers.error());
  if (layers->empty()) return {};
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::kUnsupported, "{}: weights are quantized, and {}; dequantize the model first", escape(model.path()), why);
  };
  if (!TRY(keeps_codes(model, path, options))) return refuse("a single file cannot store how");
  TRY(check_side_files(model, selection));
  const bool names_layers =
      std::ranges::any_of(model.files(), [](const ModelFile& file) { return file.metadata.contains(kComfyMetadata); });
  std::map<std::string_view, std::string_view> names;
  for (std::size_t i = 0; i < selection.targets.size(); ++i) names[selection.sources[i]->name] = selection.targets[i].name;
  for (const std::vector<const TensorInfo*>& parts : *layers) {
    std::size_t found = 0;
    for (const TensorInfo* const part : parts) {
      const auto name = names.find(part->name);
      if (name == names.end()) continue;
      ++found;
      if (name->second != part->name) return refuse(fmt::format("{} cannot be renamed", quote(part->name)));
    }
    if (found == 0 && names_layers)
      return refuse(fmt::format("the metadata names {}, which is left out", quote(parts.front()->name)));
    if (found != 0 && found != parts.size())
      return refuse(fmt::format("{} would lose its weights, scales or biases", quote(parts.front()->name)));
  }
  return {};
}

Result<void> check_decoded(const Model& model, const std::string& path) {
  const auto is_output = [&](const std::string& file) {
    std::error_code different;
    return std::filesystem::equivalent(file, path, different) && !different;
  };
  const Folder* const folder = ModelAccess::folder(model);
  if (!is_output(model.path()) && (folder == nullptr || !is_output(folder->path()))) return {};
  return fail(Errc::kInvalidArgument, "{}: the {} model is read from here; give another output", escape(path),
              ModelAccess::is_dequantized(model) ? "quantized" : "base");
}

Result<Model> open_to_convert(const std::string& model, const std::string& path, const ConvertOptions& options,
                              const OpenOptions& open) {
  auto weights = Weights::open(model, open);
  const bool may_be_undecodable = options.loras.empty() && !weights && weights.error().code == Errc::kUnsupported;
  if (may_be_undecodable) return Model::open(model, open);
  if (!weights) return std::unexpected(std::move(weights.error()));
  std::optional<DType> dtype;
  if (options.dtype && info(*options.dtype).kind == NumberKind::kFloat) dtype = wide(*options.dtype);
  if (!options.loras.empty()) return merge_loras(*std::move(weights), options.loras, open, merged_dtypes(dtype, options));
  const Model* const stored = weights->stored();
  if (stored != nullptr && (!weights->is_quantized() || TRY(keeps_codes(*stored, path, options)))) {
    return *std::move(*weights).take_stored();
  }
  return decode(std::move(*weights), dtype);
}

}  // namespace ballast
