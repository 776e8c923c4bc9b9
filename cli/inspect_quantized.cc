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
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

Totals total(const QuantizedModelInfo& model) {
  Totals all;
  for (const QuantizedTensorInfo& tensor : model.tensors) all.add(tensor.parameters, tensor.bytes);
  return all;
}

Json totals_json(const Totals& totals) {
  return {{"tensors", totals.tensors}, {"parameters", totals.parameters}, {"bytes", totals.bytes}};
}

std::string width_name(const QuantizedTensorInfo& tensor) {
  return tensor.bits == 0 ? "kept" : fmt::format("int{} of {}", tensor.bits, tensor.group_size);
}

std::map<std::string, Totals> totals_by_width(const QuantizedModelInfo& model) {
  std::map<std::string, Totals> totals;
  for (const QuantizedTensorInfo& tensor : model.tensors) totals[width_name(tensor)].add(tensor.parameters, tensor.bytes);
  return totals;
}

void print_json(const QuantizedView& view, const QuantizedModelInfo& model,
                const std::vector<const QuantizedTensorInfo*>& shown) {
  Json files = Json::array();
  for (const ConvertedFile& file : model.files) files.push_back({{"path", file.path}, {"size", file.bytes}});
  std::map<std::string, Totals> by_dtype;
  for (const QuantizedTensorInfo& tensor : model.tensors)
    by_dtype[std::string(name(tensor.dtype))].add(tensor.parameters, tensor.bytes);
  Json dtypes = Json::object();
  for (const auto& [dtype, totals] : by_dtype) dtypes[dtype] = totals_json(totals);
  const Totals all = total(model);
  Json json{{"path", without_secrets(view.path)},
            {"format", name(model.format)},
            {"files", std::move(files)},
            {"tensor_count", all.tensors},
            {"parameter_count", all.parameters},
            {"data_bytes", all.bytes},
            {"dtypes", std::move(dtypes)},
            {"quantization", widths_json(model)},
            {"time_boundaries", model.time_boundaries ? Json(*model.time_boundaries) : Json()},
            {"metadata", Json::object()},
            {"modality", model.modality.empty() ? "unknown" : model.modality},
            {"config", model.config.empty() ? Json() : Json::parse(model.config)},
            {"warnings", Json::array()}};
  if (view.tensors) {
    json["tensors"] = Json::array();
    for (const QuantizedTensorInfo* const tensor : shown) {
      json["tensors"].push_back({{"name", tensor->name},
                                 {"dtype", name(tensor->dtype)},
                                 {"shape", tensor->shape},
                                 {"bits", tensor->bits},
                                 {"group_size", tensor->group_size},
                                 {"equalized", tensor->equalized},
                                 {"bytes", tensor->bytes},
                                 {"file", tensor->file}});
    }
  }
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void print_tensors(const std::vector<const QuantizedTensorInfo*>& tensors) {
  std::size_t names = 6;
  std::size_t shapes = 5;
  for (const QuantizedTensorInfo* const tensor : tensors) {
    names = std::max(names, width(label_text(tensor->name)));
    shapes = std::max(shapes, shape_text(tensor->shape).size());
  }
  print("\n{}\n", tinted(Tone::kDim, fmt::format("{:<{}}  {:<11}  {:<{}}  {:<12}  {:>8}", "tensor", names, "dtype", "shape",
                                                 shapes, "stored as", "size")));
  for (const QuantizedTensorInfo* const tensor : tensors) {
    const std::string label = label_text(tensor->name);
    print("{}{:{}}  {:<11}  {:<{}}  {:<12}  {:>8}\n", label, "", names - width(label), name(tensor->dtype),
          shape_text(tensor->shape), shapes, width_name(*tensor), human_bytes(tensor->bytes));
  }
}

}  // namespace

Json widths_json(const QuantizedModelInfo& model) {
  Json json = Json::object();
  for (const auto& [width, totals] : totals_by_width(model)) json[width] = totals_json(totals);
  return json;
}

void print_widths(const QuantizedModelInfo& model) {
  print("\n{}\n", tinted(Tone::kDim, fmt::format("{:<11}  {:>8}  {:>18}  {:>8}", "stored as", "tensors", "parameters", "size")));
  for (const auto& [width, totals] : totals_by_width(model)) {
    print("{:<11}  {:>8}  {:>18}  {:>8}\n", width, grouped(totals.tensors), grouped(totals.parameters),
          human_bytes(totals.bytes));
  }
  const auto equalized = std::ranges::count(model.tensors, true, &QuantizedTensorInfo::equalized);
  if (equalized > 0) print("columns of {} are scaled\n", counted(static_cast<std::uint64_t>(equalized), "tensor"));
  if (model.time_boundaries) {
    print("parameters for {} of timesteps{}\n", counted(model.time_boundaries->size() + 1, "group"),
          model.time_boundaries->empty() ? "" : fmt::format(", which begin at {}", fmt::join(*model.time_boundaries, ", ")));
  }
}

Exit inspect_quantized(const QuantizedView& view) {
  const auto model = describe_quantized(view.path);
  if (!model) return report(model.error());
  std::vector<const QuantizedTensorInfo*> shown;
  for (const QuantizedTensorInfo& tensor : model->tensors) {
    if (glob_match(view.filter, tensor.name)) shown.push_back(&tensor);
  }
  std::ranges::sort(shown, natural_less, [](const QuantizedTensorInfo* tensor) { return tensor->name; });
  if (view.json) {
    print_json(view, *model, shown);
    return kDone;
  }
  const Totals all = total(*model);
  print("{}  {}{}\n", tinted(Tone::kBold, escape(without_secrets(view.path))),
        model->modality.empty() ? "" : model->modality + ", ",
        model->format == QuantizeFormat::kParquet ? "Parquet V2 Extended" : "MLX quantized");
  print("{}, {} parameters, {} in {}\n", counted(all.tensors, "tensor"), grouped(all.parameters), human_bytes(all.bytes),
        counted(model->files.size(), "file"));
  if (shown.size() != model->tensors.size()) print("{} match '{}'\n", grouped(shown.size()), escape(view.filter));
  if (view.tensors || shown.size() != model->tensors.size()) print_tensors(shown);
  print_widths(*model);
  return kDone;
}

}  // namespace ballast::cli
