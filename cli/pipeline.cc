#include "pipeline.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/text.h>
#include <ballast/weights.h>

#include "format.h"
#include "inspect_quantized.h"
#include "table.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

// The stored tensors, and the parameters of the weights.
Totals total(const Weights& weights) {
  Totals all;
  for (const Weight& weight : weights.weights()) all.add(weight.elements(), weight.bytes);
  if (const Model* const stored = weights.stored()) {
    all.tensors = stored->tensors().size();
    all.bytes = stored->data_bytes();
  }
  return all;
}

std::map<std::string, Totals> totals_by_dtype(const Weights& weights) {
  std::map<std::string, Totals> totals;
  if (const Model* const stored = weights.stored()) {
    for (const TensorInfo& tensor : stored->tensors())
      totals[std::string(name(tensor.dtype))].add(tensor.elements(), tensor.bytes());
    return totals;
  }
  for (const Weight& weight : weights.weights()) totals[std::string(name(weight.dtype))].add(weight.elements(), weight.bytes);
  return totals;
}

Json model_json(const Weights& weights, bool tensors, const std::string& reason) {
  Json files = Json::array();
  for (const ModelFile& file : weights.files()) files.push_back({{"path", file.path}, {"size", file.size}});
  Json dtypes = Json::object();
  for (const auto& [dtype, of] : totals_by_dtype(weights)) {
    dtypes[dtype] = {{"tensors", of.tensors}, {"parameters", of.parameters}, {"bytes", of.bytes}};
  }
  const Totals all = total(weights);
  Json json{{"scheme", weights.scheme()},
            {"files", std::move(files)},
            {"tensor_count", all.tensors},
            {"parameter_count", all.parameters},
            {"data_bytes", all.bytes},
            {"dtypes", std::move(dtypes)},
            {"warnings", std::vector(weights.warnings().begin(), weights.warnings().end())}};
  if (!reason.empty()) json["warnings"].push_back(reason);
  if (weights.scheme() != "plain") json["quantization"] = widths_json(weights);
  json["weights"] = Json::array();
  for (const Weight& weight : weights.weights()) json["weights"].push_back(weight_json(weight));
  if (!tensors) return json;
  json["tensors"] = Json::array();
  if (const Model* const stored = weights.stored()) {
    for (const TensorInfo& tensor : stored->tensors()) json["tensors"].push_back(tensor_json(*stored, tensor));
  }
  return json;
}

// The options with the variant, if the component has it; otherwise with the plain weights.
OpenOptions options_for(const Component& component, OpenOptions options) {
  const auto has = [&](const std::string& variant) {
    return std::ranges::find(component.variants, variant) != component.variants.end();
  };
  options.component.clear();
  if (!has(options.variant) && has("")) options.variant.clear();
  return options;
}

std::string dtypes_text(const Weights& weights) {
  std::set<std::string> names;
  for (const Weight& weight : weights.weights()) {
    names.insert(weight.is_quantized() ? storage_name(weight.storage) : std::string(name(weight.dtype)));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Json component_json(const Component& component) {
  return {{"name", component.name},
          {"library", component.library},
          {"class", component.class_name},
          {"path", without_secrets(component.path)},
          {"has_weights", component.has_weights},
          {"denoiser", component.is_denoiser},
          {"variants", component.variants}};
}

}  // namespace

Result<std::vector<Component>> components_instead(const Error& error, const std::string& path, const OpenOptions& options) {
  if (error.code != Errc::kInvalidArgument || !options.component.empty()) return {};
  auto components = list_components(path, options);
  if (!components && components.error().code == Errc::kInvalidArgument) return {};  // the first error says what is wrong
  return components;
}

bool is_pipeline(const std::string& path, const OpenOptions& options) {
  const auto components = list_components(path, options);
  return components && !components->empty();
}

Exit inspect_pipeline(const PipelineView& view, const std::vector<Component>& components) {
  const auto has_variant = [&](const Component& component) {
    return std::ranges::find(component.variants, view.open.variant) != component.variants.end();
  };
  if (!view.open.variant.empty() && std::ranges::none_of(components, has_variant)) {
    return report({.code = Errc::kNotFound,
                   .message = fmt::format("{}: no component has weights of the variant '{}'", escape(without_secrets(view.path)),
                                          escape(view.open.variant))});
  }
  Json described = Json::array();
  Table table({{.title = "component"},
               {.title = "class", .least = 16},
               {.title = "dtype", .least = 8},
               {.title = "tensors", .right = true},
               {.title = "parameters", .right = true, .drop = 1},
               {.title = "size", .right = true}});
  Totals all;
  for (const Component& component : components) {
    described.push_back(component_json(component));
    if (!component.has_weights) {
      table.add({label_text(component.name), escape(component.class_name), "", "", "", ""});
      continue;
    }
    std::string reason;
    const auto weights = open_to_inspect(component.path, options_for(component, view.open), reason);
    if (!weights) return report(weights.error());
    if (!view.json) {
      for (const std::string& warning : weights->warnings()) warn(fmt::format("{}: {}", escape(component.name), warning));
      if (!reason.empty()) warn(fmt::format("{}: {}", escape(component.name), reason));
    }
    const Totals own = total(*weights);
    all.tensors += own.tensors;
    all.parameters += own.parameters;
    all.bytes += own.bytes;
    described.back()["model"] = model_json(*weights, view.tensors, reason);
    table.add({label_text(component.name), escape(component.class_name), dtypes_text(*weights), grouped(own.tensors),
               grouped(own.parameters), human_bytes(own.bytes)});
  }
  if (view.json) {
    const Json json{{"path", without_secrets(view.path)}, {"format", "pipeline"},
                    {"components", std::move(described)}, {"tensor_count", all.tensors},
                    {"parameter_count", all.parameters},  {"data_bytes", all.bytes}};
    print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kDone;
  }
  print("{}  pipeline\n", tinted(Tone::kBold, escape(without_secrets(view.path))));
  print("{}, {}, {} parameters, {}\n\n", counted(components.size(), "component"), counted(all.tensors, "tensor"),
        grouped(all.parameters), human_bytes(all.bytes));
  table.print();
  return kDone;
}

Json components_json(std::span<const ComponentReport> components) {
  Json json = Json::array();
  for (const ComponentReport& component : components) {
    json.push_back({{"name", component.name},
                    {"class", component.class_name},
                    {"action", name(component.action)},
                    {"tensor_count", component.tensors},
                    {"bytes", component.bytes}});
  }
  return json;
}

void note_unquantized(std::span<const ComponentReport> components) {
  std::vector<std::string> names;
  for (const ComponentReport& component : components) {
    if (component.action == ComponentAction::kUnquantized) names.push_back(escape(component.name));
  }
  if (names.empty()) return;
  note(fmt::format("copied unquantized: {}; --component quantizes one of them", fmt::join(names, ", ")));
}

}  // namespace ballast::cli
