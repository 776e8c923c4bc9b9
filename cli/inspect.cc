#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/glob.h>
#include <ballast/model.h>
#include <ballast/text.h>
#include <ballast/values.h>

#include "command.h"
#include "display_width.h"
#include "format.h"
#include "inspect_quantized.h"
#include "pipeline.h"
#include "table.h"
#include "terminal.h"
#include "tree.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path;
  bool json = false;
  bool tensors = false;
  bool stats = false;
  std::string filter = "*";
  ReadOptions read;
};

using Stats = std::vector<std::optional<TensorStats>>;

// The stored tensors and the weights to show, in natural order, with the tensors' statistics if wanted.
struct Selection {
  std::vector<const TensorInfo*> tensors;
  std::vector<const Weight*> weights;
  Stats stats;  // of the weights if they are quantized, else of the tensors; empty unless wanted
};

std::map<DType, Totals> totals_by_dtype(std::span<const TensorInfo* const> tensors) {
  std::map<DType, Totals> totals;
  for (const TensorInfo* const tensor : tensors) totals[tensor->dtype].add(tensor->elements(), tensor->bytes());
  return totals;
}

std::vector<const TensorInfo*> select(const Model& model, const std::string& filter) {
  std::vector<const TensorInfo*> chosen;
  for (const TensorInfo& tensor : model.tensors()) {
    if (glob_match(filter, tensor.name)) chosen.push_back(&tensor);
  }
  std::ranges::sort(chosen, natural_less, [](const TensorInfo* tensor) { return tensor->name; });
  return chosen;
}

std::vector<const Weight*> select(const Weights& weights, const std::string& filter) {
  std::vector<const Weight*> chosen;
  for (const Weight& weight : weights.weights()) {
    if (glob_match(filter, weight.name)) chosen.push_back(&weight);
  }
  std::ranges::sort(chosen, natural_less, [](const Weight* weight) { return weight->name; });
  return chosen;
}

// Quantized weights are decoded from a second look at the model.
Result<Stats> measure(const Weights& weights, const Selection& selection, const InspectOptions& options) {
  std::vector<std::string_view> names;
  std::optional<Model> decoded;
  if (weights.is_quantized()) {
    auto opened = open_weights(options.path, options.read);
    if (!opened) return std::unexpected(std::move(opened.error()));
    decoded = std::move(*opened);
    for (const Weight* const weight : selection.weights) names.push_back(weight->name);
  } else {
    for (const TensorInfo* const tensor : selection.tensors) names.push_back(tensor->name);
  }
  const Model& model = decoded ? *decoded : *weights.stored();
  ProgressBar bar("reading");
  return compute_stats(model, names, {.work = bar.work()});
}

// The config, with fields that have several names under their usual names as well.
Json config_json(const ModelConfig& config) {
  Json json = Json::parse(config.json);
  for (const auto& [key, number] : usual_numbers(config)) {
    std::visit([&](auto value) { json[std::string(key)] = value; }, number);
  }
  return json;
}

Json stats_json(const TensorStats& stats) {
  return {{"count", stats.count},        {"zeros", stats.zeros},   {"nan", stats.nans},
          {"inf", stats.infinities},     {"min", stats.min},       {"max", stats.max},
          {"mean", stats.mean},          {"std", stats.deviation}, {"l2_norm", stats.l2_norm},
          {"histogram", stats.histogram}};
}

Exit print_json(const Weights& weights, const Selection& selection, const InspectOptions& options, const std::string& reason) {
  const Model& model = *weights.stored();
  Json files = Json::array();
  for (const ModelFile& file : model.files()) {
    files.push_back({{"path", file.path}, {"size", file.size}, {"data_start", file.data_start}});
  }
  Json dtypes = Json::object();
  for (const auto& [dtype, totals] : totals_by_dtype(select(model, "*"))) {
    dtypes[std::string(name(dtype))] = {{"tensors", totals.tensors}, {"parameters", totals.parameters}, {"bytes", totals.bytes}};
  }
  Json json{{"path", model.path()},
            {"format", name(model.format())},
            {"files", std::move(files)},
            {"tensor_count", model.tensors().size()},
            {"parameter_count", weights.parameter_count()},
            {"data_bytes", model.data_bytes()},
            {"dtypes", std::move(dtypes)},
            {"metadata", model.metadata()},
            {"modality", name(model.modality())},
            {"config", model.config() ? config_json(*model.config()) : Json()},
            {"warnings", std::vector(model.warnings().begin(), model.warnings().end())}};
  if (!reason.empty()) json["warnings"].push_back(reason);
  if (weights.scheme() != "plain") {
    const auto boundaries = weights.time_boundaries();
    if (!boundaries) return report(boundaries.error());
    json["quantization"] = widths_json(weights);
    json["time_boundaries"] = *boundaries ? Json(**boundaries) : Json();
  }
  json["weights"] = Json::array();
  for (std::size_t i = 0; i < selection.weights.size(); ++i) {
    json["weights"].push_back(weight_json(*selection.weights[i]));
    if (!options.stats || !weights.is_quantized()) continue;
    json["weights"].back()["stats"] = selection.stats[i] ? stats_json(*selection.stats[i]) : Json();
  }
  if (options.tensors || options.stats) {
    Json tensors = Json::array();
    for (std::size_t i = 0; i < selection.tensors.size(); ++i) {
      tensors.push_back(tensor_json(model, *selection.tensors[i]));
      if (!options.stats || weights.is_quantized()) continue;
      tensors.back()["stats"] = selection.stats[i] ? stats_json(*selection.stats[i]) : Json();
    }
    json["tensors"] = std::move(tensors);
  }
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
  return kDone;
}

void print_summary(const Weights& weights, const Selection& selection, const InspectOptions& options) {
  const Model& model = *weights.stored();
  std::string what;
  if (model.config() && !model.config()->architectures.empty()) what = escape(model.config()->architectures.front());
  if (what.empty() && model.config()) what = escape(model.config()->model_type);
  if (const Modality modality = model.modality(); modality != Modality::kUnknown) {
    what += fmt::format("{}{}", what.empty() ? "" : ", ", name(modality));
  }
  if (model.format() != Format::kSafetensors) what += fmt::format("{}{}", what.empty() ? "" : ", ", name(model.format()));
  print("{}{}\n", tinted(Tone::kBold, escape(model.path())), what.empty() ? "" : "  " + what);
  print("{}, {} parameters, {} in {}\n", counted(model.tensors().size(), "tensor"), grouped(weights.parameter_count()),
        human_bytes(model.data_bytes()), counted(model.files().size(), "file"));
  if (selection.weights.size() != weights.weights().size()) {
    print("{} match '{}'\n", grouped(selection.weights.size()), escape(options.filter));
  }
}

void print_metadata(const Metadata& metadata) {
  constexpr std::size_t kMost = 20;
  constexpr std::size_t kWidestKey = 32;
  constexpr std::size_t kLongest = 4096;  // of a value; escaping more is a waste
  std::size_t shown = 0;
  for (const auto& [key, value] : metadata) {
    if (++shown > kMost) {
      print("{} … {} more; --json lists them all\n", tinted(Tone::kDim, "metadata"), grouped(metadata.size() - kMost));
      return;
    }
    const std::string start = fmt::format(" {} = ", shortened(label_text(key), kWidestKey));
    const std::string text = escape(value.substr(0, kLongest));
    const std::size_t room = output_columns() - display_width("metadata") - display_width(start);
    const std::string size = fmt::format("… ({} bytes)", grouped(value.size()));
    const bool fits = value.size() <= kLongest && display_width(text) <= room;
    print("{}{}{}\n", tinted(Tone::kDim, "metadata"), start, fits ? text : beginning(text, room - display_width(size)) + size);
  }
}

void print_tree(std::span<const Weight* const> weights) {
  Table table({{.title = "", .least = 24},
               {.title = "dtype", .least = 24},
               {.title = "shape", .least = 16},
               {.title = "tensors", .right = true},
               {.title = "size", .right = true}});
  for (const TreeRow& row : make_tree(weights)) {
    Cell label = row.label;
    label.branch = row.branch;
    table.add({label, row.dtype, row.shape, grouped(row.tensors), human_bytes(row.bytes)});
  }
  print("\n");
  table.print();
}

void print_tensors(const Model& model, std::span<const TensorInfo* const> tensors) {
  std::vector<Column> columns{{.title = "tensor", .least = 24},
                              {.title = "dtype"},
                              {.title = "shape", .least = 12},
                              {.title = "size", .right = true, .drop = 1},
                              {.title = "data_offsets"}};
  const bool several = model.files().size() > 1;
  if (several) columns.push_back({.title = "file", .least = 24, .drop = 2});
  Table table(std::move(columns));
  for (const TensorInfo* const tensor : tensors) {
    std::vector<Cell> cells{label_text(tensor->name), name(tensor->dtype), shape_text(tensor->shape),
                            human_bytes(tensor->bytes()), fmt::format("[{}, {}]", tensor->begin, tensor->end)};
    if (several) cells.emplace_back(escape(std::filesystem::path(model.files()[tensor->file].path).filename().string()));
    table.add(std::move(cells));
  }
  print("\n");
  table.print();
}

// Bars from ▁ to █, the tallest for the fullest bin; a blank for an empty one.
std::string sparkline(const TensorStats& stats) {
  constexpr std::array<std::string_view, 8> kBars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::uint64_t most = *std::ranges::max_element(stats.histogram);
  std::string line;
  for (const std::uint64_t count : stats.histogram) {
    if (count == 0) {
      line += ' ';
      continue;
    }
    const double share = static_cast<double>(count) / static_cast<double>(most);
    line += kBars[static_cast<std::size_t>(std::lround(share * (kBars.size() - 1)))];
  }
  return line;
}

Cell flagged(std::uint64_t count) { return {grouped(count), count == 0 ? Tone::kPlain : Tone::kRed}; }

// NaN and Inf are the first columns to leave out if there are none, else the last.
void print_stats(std::span<const Weight* const> weights, const Stats& stats) {
  const auto any = [&](std::uint64_t TensorStats::* count) {
    return std::ranges::any_of(stats, [&](const auto& of) { return of && (*of).*count > 0; });
  };
  Table table({{.title = "tensor", .least = 24},
               {.title = "min", .right = true},
               {.title = "max", .right = true},
               {.title = "mean", .right = true, .drop = 4},
               {.title = "std", .right = true},
               {.title = "zeros", .right = true, .drop = 3},
               {.title = "NaN", .right = true, .drop = any(&TensorStats::nans) ? 6U : 1U},
               {.title = "Inf", .right = true, .drop = any(&TensorStats::infinities) ? 6U : 2U},
               {.title = "histogram", .drop = 5}});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string label = label_text(weights[i]->name);
    if (!stats[i]) {
      table.add_remark(label, fmt::format("{} has no standard packing", name(weights[i]->dtype)));
      continue;
    }
    const TensorStats& of = *stats[i];
    const auto value = [&](double number, int digits) { return of.finite() == 0 ? "–" : fmt::format("{:.{}g}", number, digits); };
    table.add({label, value(of.min, 4), value(of.max, 4), value(of.mean, 3), value(of.deviation, 4), grouped(of.zeros),
               flagged(of.nans), flagged(of.infinities), of.finite() == 0 ? "" : sparkline(of)});
  }
  print("\n");
  table.print();
}

void print_dtypes(std::span<const TensorInfo* const> tensors) {
  const auto totals = totals_by_dtype(tensors);
  if (totals.empty()) return;
  Table table({{.title = "dtype"},
               {.title = "tensors", .right = true},
               {.title = "parameters", .right = true},
               {.title = "size", .right = true}});
  for (const auto& [dtype, total] : totals) {
    table.add({name(dtype), grouped(total.tensors), grouped(total.parameters), human_bytes(total.bytes)});
  }
  print("\n");
  table.print();
}

Exit inspect_components(const InspectOptions& options, const std::vector<Component>& components) {
  if (options.stats || options.filter != "*") {
    return report({.code = Errc::kInvalidArgument,
                   .message = fmt::format("{} shows the tensors of one component; give component {}",
                                          options.stats ? "--stats" : "--filter", escape(components.front().name))});
  }
  return inspect_pipeline({.path = options.path, .tensors = options.tensors, .json = options.json, .open = options.read.open()},
                          components);
}

Exit inspect(const InspectOptions& options) {
  std::string reason;
  const auto weights = open_to_inspect(options.path, options.read.open(), reason);
  if (!weights) {
    const auto components = components_instead(weights.error(), options.path, options.read.open());
    if (!components) return report(components.error());
    return components->empty() ? report(weights.error()) : inspect_components(options, *components);
  }
  if (weights->stored() == nullptr) {
    if (options.stats) {
      return report({.code = Errc::kUnsupported,
                     .message = escape(without_secrets(options.path)) +
                                ": --stats cannot read Parquet V2; dequantize the model and inspect the result"});
    }
    return inspect_quantized({.path = options.path, .filter = options.filter, .tensors = options.tensors, .json = options.json},
                             *weights);
  }
  const Model& model = *weights->stored();
  Selection selection{.tensors = select(model, options.filter), .weights = select(*weights, options.filter), .stats = {}};
  if (options.stats) {
    auto stats = measure(*weights, selection, options);
    if (!stats) return report(stats.error());
    selection.stats = std::move(*stats);
  }
  if (options.json) return print_json(*weights, selection, options, reason);
  for (const std::string& warning : model.warnings()) warn(warning);
  print_summary(*weights, selection, options);
  print_metadata(model.metadata());
  if (selection.weights.empty() && selection.tensors.empty()) return kDone;
  if (options.stats) {
    print_stats(selection.weights, selection.stats);
  } else if (options.tensors) {
    print_tensors(model, selection.tensors);
  } else {
    print_tree(selection.weights);
  }
  print_dtypes(selection.tensors);
  if (!reason.empty()) warn(reason);
  return weights->scheme() != "plain" ? print_widths(*weights) : kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* const command = app.add_subcommand("inspect", "Show the contents of a model: tree, totals, statistics");
  add_path(*command, options->path);
  command->add_flag("--tensors", options->tensors, "List every tensor with its offsets in the file");
  command->add_flag("--stats", options->stats, "Read all values: range, mean, standard deviation, zeros, NaN, Inf, histogram");
  command->add_option("--filter", options->filter, "Show only matching tensors, such as '*.mlp.*'")->type_name("GLOB");
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "Examples:\n"
      "  ballast inspect model.safetensors\n"
      "  ballast inspect Qwen3-0.6B/ --stats --filter '*.q_proj.*'\n"
      "  ballast inspect Qwen3-0.6B/ --json | jq .parameter_count");
  command->callback([options, &run] { run = [options] { return inspect(*options); }; });
}

}  // namespace ballast::cli
