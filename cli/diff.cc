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
#include "format.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostRows = 20;

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
  for (const std::string& name : std::span(names).first(std::min(names.size(), kMostRows))) print("  {}\n", label_text(name));
  print_more(names.size());
}

std::string values_text(const TensorDifference& tensor) {
  if (!tensor.values) return "–";
  if (tensor.values->count == 0) return "equal";
  return fmt::format("{} of {}", grouped(tensor.values->count), grouped(tensor.values->values));
}

std::string largest_text(const TensorDifference& tensor) {
  if (!tensor.values || tensor.values->count == 0) return "";
  return fmt::format("{:.6g}", tensor.values->max_difference);
}

// The largest differences first; those that have no figure before all.
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
  struct Row {
    std::string name, dtype, shape, values, largest;
  };
  std::vector<Row> rows{
      {.name = "changed", .dtype = "dtype", .shape = "shape", .values = "values differ", .largest = "max |a − b|"}};
  for (const TensorDifference& tensor : shown) {
    rows.push_back({.name = label_text(tensor.name),
                    .dtype = pair(std::string(name(tensor.dtype_a)), std::string(name(tensor.dtype_b))),
                    .shape = pair(shape_text(tensor.shape_a), shape_text(tensor.shape_b)),
                    .values = values_text(tensor),
                    .largest = largest_text(tensor)});
  }
  const auto columns = [&](std::string Row::* column) {
    std::size_t most = 0;
    for (const Row& row : rows) most = std::max(most, width(row.*column));
    return most;
  };
  print("\n");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const std::string line =
        fmt::format("  {:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>11}", row.name, columns(&Row::name), row.dtype, columns(&Row::dtype),
                    row.shape, columns(&Row::shape), row.values, columns(&Row::values), row.largest);
    print("{}\n", i == 0 ? tinted(Tone::kDim, line) : line);
  }
  print_more(changed.size());
}

void print_text(const Options& options, const DiffReport& found) {
  const std::string verdict = found.equal() ? tinted(Tone::kGreen, "equal") : tinted(Tone::kRed, "different");
  print("{} and {}: {}  ({} the same", tinted(Tone::kBold, escape(without_secrets(options.a))),
        tinted(Tone::kBold, escape(without_secrets(options.b))), verdict, counted(found.same, "tensor"));
  if (!found.changed.empty()) print(", {} changed", grouped(found.changed.size()));
  if (!found.only_a.empty()) print(", {} only in the first", grouped(found.only_a.size()));
  if (!found.only_b.empty()) print(", {} only in the second", grouped(found.only_b.size()));
  print(")\n");
  print_names(fmt::format("  only in {}", escape(without_secrets(options.a))), found.only_a);
  print_names(fmt::format("  only in {}", escape(without_secrets(options.b))), found.only_b);
  print_changed(found.changed);
  print_names("  other metadata", found.metadata);
}

Exit run_diff(const Options& options) {
  const auto a = open_values(options.a, options.read);
  if (!a) return report(a.error());
  const auto b = open_values(options.b, options.read);
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
