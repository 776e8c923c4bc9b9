#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/diff.h>
#include <ballast/text.h>

#include "command.h"
#include "display_width.h"
#include "format.h"
#include "pipeline.h"
#include "table.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostRows = 20;
constexpr std::size_t kIndent = 2;

struct Options {
  std::string a;
  std::string b;
  unsigned threads = 0;
  ReadOptions read;
  bool json = false;
};

Json json_of(const TensorDifference& tensor) {
  Json json{{"name", tensor.name},
            {"dtype", {name(tensor.dtype_a), name(tensor.dtype_b)}},
            {"shape", {tensor.shape_a, tensor.shape_b}}};
  if (tensor.values) {
    json["different_values"] = tensor.values->count;
    json["values"] = tensor.values->values;
    if (tensor.values->count > 0) json["first_difference"] = tensor.values->first;
    json["max_difference"] = tensor.values->max_difference;  // null for NaN
  }
  return json;
}

void print_json(const Options& options, const DiffReport& found) {
  Json changed = Json::array();
  for (const TensorDifference& tensor : found.changed) changed.push_back(json_of(tensor));
  const Json json{{"a", without_secrets(options.a)},
                  {"b", without_secrets(options.b)},
                  {"equal", found.equal()},
                  {"same", found.same},
                  {"only_in_a", found.only_a},
                  {"only_in_b", found.only_b},
                  {"changed", changed},
                  {"metadata", found.metadata}};
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void print_more(std::size_t count) {
  if (count > kMostRows) print("  … {} more; --json lists them all\n", grouped(count - kMostRows));
}

void print_names(const std::string& title, std::vector<std::string> names) {
  if (names.empty()) return;
  std::ranges::sort(names, natural_less);
  print("\n{}\n", tinted(Tone::kDim, title));
  std::vector<std::string> labels;
  for (const std::string& name : std::span(names).first(std::min(names.size(), kMostRows))) labels.push_back(label_text(name));
  const std::vector<std::size_t> rooms(labels.size(), output_columns() - kIndent);
  for (const std::string& label : shortened(labels, rooms)) print("  {}\n", label);
  print_more(names.size());
}

std::string values_text(const TensorDifference& tensor) {
  if (!tensor.values) return "–";
  return tensor.values->count == 0 ? "equal" : grouped(tensor.values->count);
}

std::string largest_text(const TensorDifference& tensor) {
  if (!tensor.values || tensor.values->count == 0) return "";
  return fmt::format("{:.6g}", tensor.values->max_difference);
}

// The largest differences first; those without a number before them.
void print_changed(std::vector<TensorDifference> changed) {
  if (changed.empty()) return;
  std::ranges::sort(changed, [](const TensorDifference& x, const TensorDifference& y) {
    const auto weight = [](const TensorDifference& tensor) {
      constexpr double kMost = std::numeric_limits<double>::infinity();
      return tensor.values && !std::isnan(tensor.values->max_difference) ? tensor.values->max_difference : kMost;
    };
    if (weight(x) != weight(y)) return weight(x) > weight(y);
    return natural_less(x.name, y.name);
  });
  const auto shown = std::span(changed).first(std::min(changed.size(), kMostRows));
  const auto pair = [](std::string a, const std::string& b) { return a == b ? a : fmt::format("{} → {}", a, b); };
  Table table({{.title = "changed", .least = 24},
               {.title = "dtype"},
               {.title = "shape", .least = 12},
               {.title = "values differ", .right = true},
               {.title = "of", .right = true, .drop = 1},
               {.title = "max |a − b|", .right = true}},
              kIndent);
  for (const TensorDifference& tensor : shown) {
    table.add({label_text(tensor.name), pair(std::string(name(tensor.dtype_a)), std::string(name(tensor.dtype_b))),
               pair(shape_text(tensor.shape_a), shape_text(tensor.shape_b)), values_text(tensor),
               tensor.values ? grouped(tensor.values->values) : "", largest_text(tensor)});
  }
  print("\n");
  table.print();
  print_more(changed.size());
}

void print_text(const Options& options, const DiffReport& found) {
  print("{} and {}: ", tinted(Tone::kBold, escape(without_secrets(options.a))),
        tinted(Tone::kBold, escape(without_secrets(options.b))));
  if (found.equal()) {
    print("{}  ({})\n", tinted(Tone::kGreen, "equal"), counted(found.same, "tensor"));
  } else {
    print("{}\n{} equal", tinted(Tone::kRed, "different"), counted(found.same, "tensor"));
    if (!found.changed.empty()) print(", {} changed", grouped(found.changed.size()));
    if (!found.only_a.empty()) print(", {} only in the first", grouped(found.only_a.size()));
    if (!found.only_b.empty()) print(", {} only in the second", grouped(found.only_b.size()));
    print("\n");
  }
  print_names(fmt::format("  only in {}", escape(without_secrets(options.a))), found.only_a);
  print_names(fmt::format("  only in {}", escape(without_secrets(options.b))), found.only_b);
  print_changed(found.changed);
  print_names("  other metadata", found.metadata);
}

Exit run_diff(const Options& options) {
  const auto a = open_values(options.a, options.read);
  if (!a) return report(a.error());
  ReadOptions second = options.read;  // a component may be compared with a model of its own
  second.component.clear();
  if (is_pipeline(options.b, second.open())) second.component = options.read.component;
  const auto b = open_values(options.b, second);
  if (!b) return report(b.error());
  for (const Model* const model : {&*a, &*b}) {
    for (const std::string& warning : model->warnings()) warn(warning);
  }
  ProgressBar bar("comparing");
  const auto found = diff_models(*a, *b, bar.work(options.threads));
  bar.clear();
  if (!found) return report(found.error());
  if (options.json) {
    print_json(options, *found);
  } else {
    print_text(options, *found);
  }
  return found->equal() ? kDone : kFoundFalse;
}

}  // namespace

void add_diff(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("diff", "Compare two models: names, dtypes, shapes and values");
  add_path(*command, options->a, "A");
  add_path(*command, options->b, "B");
  add_threads(*command, options->threads);
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "Exit codes: 0 if all tensors are equal, otherwise 1. Metadata that differs is\n"
      "listed, but does not count.\n\n"
      "Examples:\n"
      "  ballast diff before.safetensors after.safetensors\n"
      "  ballast diff Qwen3-0.6B/ out/ --json | jq '.changed[].max_difference'");
  command->callback([options, &run] { run = [options] { return run_diff(*options); }; });
}

}  // namespace ballast::cli
