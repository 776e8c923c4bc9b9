#include "inspect_quantized.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ballast/glob.h>
#include <ballast/text.h>

#include "format.h"
#include "table.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

Totals total(const Weights& model) {
  Totals all;
  for (const Weight& tensor : model.weights()) all.add(tensor.elements(), tensor.bytes);
  return all;
}

Json totals_json(const Totals& totals) {
  return {{"tensors", totals.tensors}, {"parameters", totals.parameters}, {"bytes", totals.bytes}};
}

const std::string kUnquantizedKey = "kept";
const std::string kUnquantizedText = "unquantized";

// A key of the JSON document.
std::string width_name(const Weight& tensor) { return tensor.is_quantized() ? storage_name(tensor.storage) : kUnquantizedKey; }

std::string width_text(const Weight& tensor) { return tensor.is_quantized() ? width_name(tensor) : kUnquantizedText; }

std::map<std::string, Totals> totals_by_width(const Weights& model) {
  std::map<std::string, Totals> totals;
  for (const Weight& tensor : model.weights()) totals[width_name(tensor)].add(tensor.elements(), tensor.bytes);
  return totals;
}

Exit print_json(const QuantizedView& view, const Weights& model, const std::vector<const Weight*>& shown) {
  const auto boundaries = model.time_boundaries();
  if (!boundaries) return report(boundaries.error());
  Json files = Json::array();
  for (const ModelFile& file : model.files()) files.push_back({{"path", file.path}, {"size", file.size}});
  std::map<std::string, Totals> by_dtype;
  for (const Weight& tensor : model.weights()) by_dtype[std::string(name(tensor.dtype))].add(tensor.elements(), tensor.bytes);
  Json dtypes = Json::object();
  for (const auto& [dtype, totals] : by_dtype) dtypes[dtype] = totals_json(totals);
  const Totals all = total(model);
  Json json{{"path", without_secrets(view.path)},
            {"format", model.scheme()},
            {"files", std::move(files)},
            {"tensor_count", all.tensors},
            {"parameter_count", all.parameters},
            {"data_bytes", all.bytes},
            {"dtypes", std::move(dtypes)},
            {"quantization", widths_json(model)},
            {"time_boundaries", *boundaries ? Json(**boundaries) : Json()},
            {"metadata", Json::object()},
            {"modality", name(model.modality())},
            {"config", model.config() ? Json::parse(model.config()->json) : Json()},
            {"warnings", Json::array()},
            {"weights", Json::array()}};
  for (const Weight* const weight : shown) json["weights"].push_back(weight_json(*weight));
  if (view.tensors) {
    json["tensors"] = Json::array();
    for (const Weight* const tensor : shown) {
      json["tensors"].push_back({{"name", tensor->name},
                                 {"dtype", name(tensor->dtype)},
                                 {"shape", tensor->shape},
                                 {"bits", tensor->storage.bits},
                                 {"group_size", tensor->storage.group_size},
                                 {"equalized", tensor->storage.equalized},
                                 {"bytes", tensor->bytes},
                                 {"file", tensor->file}});
    }
  }
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
  return kDone;
}

void print_tensors(const std::vector<const Weight*>& tensors) {
  Table table({{.title = "tensor", .least = 24},
               {.title = "dtype"},
               {.title = "shape", .least = 12},
               {.title = "stored as", .least = 24},
               {.title = "size", .right = true}});
  for (const Weight* const tensor : tensors) {
    table.add({label_text(tensor->name), name(tensor->dtype), shape_text(tensor->shape), width_text(*tensor),
               human_bytes(tensor->bytes)});
  }
  print("\n");
  table.print();
}

}  // namespace

Json widths_json(const Weights& model) {
  Json json = Json::object();
  for (const auto& [width, totals] : totals_by_width(model)) json[width] = totals_json(totals);
  return json;
}

Result<Weights> open_to_inspect(const std::string& path, const OpenOptions& options, std::string& reason) {
  auto weights = Weights::open(path, options);
  if (weights) return weights;
  const Errc code = weights.error().code;
  if (code != Errc::kUnsupported && code != Errc::kCorrupt) return weights;
  auto stored = Model::open(path, options);
  if (!stored) return weights;
  reason = std::move(weights.error().message);
  return Weights::as_stored(std::move(*stored));
}

Json tensor_json(const Model& model, const TensorInfo& tensor) {
  return {{"name", tensor.name},
          {"dtype", name(tensor.dtype)},
          {"shape", std::vector(tensor.shape.begin(), tensor.shape.end())},
          {"data_offsets", {tensor.begin, tensor.end}},
          {"file", model.files()[tensor.file].path}};
}

Json weight_json(const Weight& weight) {
  return {{"name", weight.name},
          {"dtype", name(weight.dtype)},
          {"shape", weight.shape},
          {"scheme", weight.storage.scheme},
          {"mode", weight.storage.mode.empty() ? Json() : Json(weight.storage.mode)},
          {"bits", weight.storage.bits},
          {"group_size", weight.storage.group_size},
          {"tensors", weight.tensors},
          {"bytes", weight.bytes}};
}

Exit print_widths(const Weights& model) {
  Table table({{.title = "stored as", .least = 24},
               {.title = "tensors", .right = true},
               {.title = "parameters", .right = true},
               {.title = "size", .right = true}});
  for (const auto& [width, totals] : totals_by_width(model)) {
    table.add({width == kUnquantizedKey ? kUnquantizedText : width, grouped(totals.tensors), grouped(totals.parameters),
               human_bytes(totals.bytes)});
  }
  print("\n");
  table.print();
  const auto equalized = std::ranges::count_if(model.weights(), [](const Weight& weight) { return weight.storage.equalized; });
  if (equalized > 0) print("{} with equalized columns\n", counted(static_cast<std::uint64_t>(equalized), "tensor"));
  const auto boundaries = model.time_boundaries();
  if (!boundaries) return report(boundaries.error());
  if (*boundaries) {
    print("time-aware parameters for {} of timesteps{}\n", counted((*boundaries)->size() + 1, "group"),
          (*boundaries)->empty() ? "" : fmt::format(", starting at {}", fmt::join(**boundaries, ", ")));
  }
  return kDone;
}

Exit inspect_quantized(const QuantizedView& view, const Weights& model) {
  std::vector<const Weight*> shown;
  for (const Weight& weight : model.weights()) {
    if (glob_match(view.filter, weight.name)) shown.push_back(&weight);
  }
  std::ranges::sort(shown, natural_less, [](const Weight* weight) { return weight->name; });
  if (view.json) return print_json(view, model, shown);
  const Totals all = total(model);
  const Modality modality = model.modality();
  print("{}  {}{}\n", tinted(Tone::kBold, escape(without_secrets(view.path))),
        modality == Modality::kUnknown ? "" : fmt::format("{}, ", name(modality)),
        model.scheme() == "parquet" ? "Parquet V2 Extended" : "MLX quantized");
  print("{}, {} parameters, {} in {}\n", counted(all.tensors, "tensor"), grouped(all.parameters), human_bytes(all.bytes),
        counted(model.files().size(), "file"));
  if (shown.size() != model.weights().size()) print("{} match '{}'\n", grouped(shown.size()), escape(view.filter));
  if (view.tensors || shown.size() != model.weights().size()) print_tensors(shown);
  return print_widths(model);
}

}  // namespace ballast::cli
