#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/quantize.h>
#include <ballast/text.h>

#include "arguments.h"
#include "command.h"
#include "format.h"
#include "pipeline.h"
#include "quality_table.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string original;
  std::string quantized;
  std::vector<std::string> loras;
  double min_accuracy = 0;
  unsigned threads = 0;
  bool all_layers = false;
  ReadOptions read;
  bool json = false;
};

// The most common bits, by parameters; null if nothing is quantized.
Json usual_bits(const QuantizeReport& report) {
  std::map<unsigned, std::uint64_t> parameters;
  for (const LayerReport& layer : report.layers) parameters[layer.bits] += layer.parameters;
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  return most == parameters.end() ? Json(nullptr) : Json(most->first);
}

// The options for the quantized model, which has no variants, and is a pipeline or one component of it.
OpenOptions open_quantized(const Options& options) {
  OpenOptions open = options.read.open();
  open.variant.clear();
  const std::string component = std::exchange(open.component, {});
  if (is_pipeline(options.quantized, open)) open.component = component;
  return open;
}

Result<QuantizeReport> validate(const Options& options) {
  ProgressBar bar("validating");
  const ValidateOptions validate{.open = open_quantized(options),
                                 .loras = parse_loras(options.loras),
                                 .min_accuracy = options.min_accuracy,
                                 .work = bar.work(options.threads)};
  const auto model = open_merged(options.original, validate.loras, options.read.open());
  if (model) return validate_model(*model, options.quantized, validate);
  const auto components = components_instead(model.error(), options.original, options.read.open());
  if (!components) return std::unexpected(components.error());
  if (components->empty()) return std::unexpected(model.error());
  return validate_pipeline(options.original, options.quantized, validate, options.read.open());
}

Exit run_validate(const Options& options) {
  const auto found = validate(options);
  if (!found) return report(found.error());
  for (const std::string& text : found->notes) note(text);
  for (const std::string& warning : found->warnings) warn(warning);
  if (options.json) {
    Json json{{"original", without_secrets(options.original)},
              {"quantized", without_secrets(options.quantized)},
              {"min_accuracy", options.min_accuracy},
              {"bit_width", usual_bits(*found)},
              {"quantization_time_s", nullptr}};  // the files do not record it
    json.update(report_json(*found));
    json["warnings"] = found->warnings;
    if (!found->components.empty()) json["components"] = components_json(found->components);
    print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
  } else {
    print("{}: {}  ({} quantized, {} left unquantized)\n", tinted(Tone::kBold, escape(without_secrets(options.quantized))),
          found->passed ? tinted(Tone::kGreen, "ok") : tinted(Tone::kRed, "failed"), counted(found->layers.size(), "tensor"),
          grouped(found->unquantized));
    print_totals(*found);
    print("\n");
    print_layers(*found, options.min_accuracy, options.all_layers);
  }
  return found->passed ? kDone : kFoundFalse;
}

// An error unless the text is a number from 0 to 1.
std::string share(const std::string& text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && stop == text.data() + text.size() && number >= 0 && number <= 1) return "";
  return fmt::format("is '{}', it must be from 0 to 1", escape(text));
}

}  // namespace

void add_validate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("validate", "Compare a quantized model with its original");
  add_path(*command, options->original, "ORIGINAL");
  command->add_option("QUANTIZED", options->quantized, kQuantizedHelp)->required()->check(not_empty());
  command
      ->add_option("--min-accuracy", options->min_accuracy,
                   "Require a cosine similarity of at least X for every layer, from 0 (default) to 1")
      ->type_name("X")
      ->check(CLI::Validator(share, ""));
  add_lora(*command, options->loras);
  command->add_flag("--layers", options->all_layers, "List all layers, not only the worst");
  add_threads(*command, options->threads);
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "Exit codes: 0 if every layer reaches --min-accuracy and unquantized tensors are\n"
      "equal, otherwise 1.\n\n"
      "Examples:\n"
      "  ballast validate Qwen3-0.6B/ qwen3-4bit/\n"
      "  ballast validate model.safetensors out/ --min-accuracy 0.99 --json");
  command->callback([options, &run] { run = [options] { return run_validate(*options); }; });
}

}  // namespace ballast::cli
