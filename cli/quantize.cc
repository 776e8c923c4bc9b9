#include <algorithm>
#include <chrono>
#include <filesystem>
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
#include "settings.h"
#include "table.h"
#include "terminal.h"
#include "tokens.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDefaultFormat =
    "the output is Parquet V2, which Ballast and data tools (DuckDB, pandas) read; use --format mlx for MLX and mlx-lm";

struct Options {
  std::string in;
  std::string out;
  std::string calibration;
  TokenOptions calibration_tokens;
  SettingsArguments settings;
  std::vector<std::string> loras;
  bool validate = false;
  bool resume = false;
  bool force = false;
  bool dry_run = false;
  bool no_sync = false;
  bool all_layers = false;
  ReadOptions read;
  bool json = false;
};

void print_done(const Options& options, const QuantizeReport& done, double seconds) {
  print("{}: {} quantized, {} left unquantized, {}{}\n", tinted(Tone::kBold, escape(options.out)),
        counted(done.layers.size(), "tensor"), grouped(done.unquantized), counted(done.files.size(), "file"),
        seconds < 1 ? "" : tinted(Tone::kDim, fmt::format("  ({:.1f} s)", seconds)));
  print_totals(done);
  if (done.calibration) print_calibration(*done.calibration);
}

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

void print_json(const Options& options, const QuantizeConfig& config, const QuantizeReport& done, bool validated,
                double seconds) {
  Json json{{"input", without_secrets(options.in)},
            {"output", options.out},
            {"format", name(config.format)},
            {"method", name(config.method)},
            {"type", name(config.type)},
            {"bit_width", config.bit_width},
            {"group_size", config.group_size},
            {"target_model_size_mb", config.target_model_size ? Json(megabytes(*config.target_model_size)) : Json()},
            {"min_accuracy", config.min_accuracy},
            {"validated", validated},
            {"quantization_time_s", seconds},
            {"not_copied", done.not_copied},
            {"notes", done.notes},
            {"warnings", done.warnings}};
  json.update(report_json(done));
  if (!done.components.empty()) json["components"] = components_json(done.components);
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

std::string_view error_title(const SizeFitReport& fit) { return fit.of_outputs ? "output error" : "relative RMSE"; }

// What the same bits for all layers would give.
std::string against_uniform(const SizeFitReport& fit) {
  if (fit.uniform_bits == 0) return "";
  return fmt::format("; {} bits for all: {:.4f}, {:.3f} MB", fit.uniform_bits, fit.uniform_error, megabytes(fit.uniform_bytes));
}

void print_bits(const QuantizeReport& done, std::uint64_t target) {
  std::map<unsigned, std::size_t> layers;
  for (const LayerReport& layer : done.layers) ++layers[layer.bits];
  std::vector<std::string> shares;
  for (const auto& [bits, count] : layers) shares.push_back(fmt::format("{} at {} bits", grouped(count), bits));
  print("target {} MB, actual {:.3f} MB: {}\n", megabytes(target), megabytes(done.bytes),
        shares.empty() ? "nothing quantized" : fmt::to_string(fmt::join(shares, ", ")));
  if (!done.size_fit || done.layers.empty()) return;
  const SizeFitReport& fit = *done.size_fit;
  print("{} {}, expected {:.4f}{}\n", error_title(fit), fit.error ? fmt::format("{:.4f}", *fit.error) : "not measured",
        fit.expected_error, against_uniform(fit));
}

// What is quantized: a model, or the components of a pipeline.
struct Input {
  std::optional<Model> model;  // empty: a pipeline

  Result<QuantizePlan> plan(const Options& options, const QuantizeOptions& work) const {
    return model ? plan_quantize(*model, options.out, work)
                 : plan_quantize_pipeline(options.in, options.out, work, options.read.open());
  }
  Result<QuantizeReport> quantize(const Options& options, const QuantizeOptions& work) const {
    return model ? quantize_model(*model, options.out, work)
                 : quantize_pipeline(options.in, options.out, work, options.read.open());
  }
  Result<QuantizeReport> validate(const Options& options, const QuantizeConfig& config) const {
    ProgressBar bar("validating");
    const ValidateOptions validate{
        .loras = parse_loras(options.loras), .min_accuracy = config.min_accuracy, .work = bar.work(config.num_threads)};
    return model ? validate_model(*model, options.out, validate)
                 : validate_pipeline(options.in, options.out, validate, options.read.open());
  }
};

Result<Input> open_input(const Options& options) {
  auto model = open_merged(options.in, parse_loras(options.loras), options.read.open());
  if (model) return Input{.model = std::move(*model)};
  const auto components = components_instead(model.error(), options.in, options.read.open());
  if (!components) return std::unexpected(components.error());
  if (components->empty()) return std::unexpected(std::move(model.error()));
  return Input{};
}

// Copies what the files do not record.
void take_over(LayerReport& validated, const LayerReport& done) {
  validated.planned_bits = done.planned_bits;
  validated.method = done.method;
  validated.expected_error = done.expected_error;
  validated.quality.output_error = done.quality.output_error;
}

void print_plan(const Options& options, const QuantizeConfig& config, const QuantizePlan& plan) {
  for (const std::string& text : plan.notes) note(text);
  note_unquantized(plan.components);
  if (options.json) {
    Json layers = Json::array();
    for (const PlannedLayer& layer : plan.layers) {
      layers.push_back({{"name", layer.name},
                        {"dtype", name(layer.dtype)},
                        {"shape", layer.shape},
                        {"bits", layer.bits},
                        {"group_size", layer.group_size},
                        {"method", layer.bits == 0 ? Json() : Json(layer.method)},
                        {"equalized", layer.equalized},
                        {"parameters", layer.parameters},
                        {"bytes", layer.bytes},
                        {"expected_error", layer.expected_error ? Json(*layer.expected_error) : Json()}});
    }
    Json json{{"input", without_secrets(options.in)},
              {"output", options.out},
              {"dry_run", true},
              {"format", name(config.format)},
              {"type", name(config.type)},
              {"modality", name(plan.modality)},
              {"key", plan.key},
              {"left_out", plan.left_out},
              {"notes", plan.notes},
              {"source_bytes", plan.source_bytes},
              {"bytes", plan.bytes},
              {"size_fit", size_fit_json(plan.size_fit)},
              {"layers", std::move(layers)}};
    if (!plan.components.empty()) json["components"] = components_json(plan.components);
    print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return;
  }
  std::vector<Column> columns{{.title = "tensor", .least = 32},
                              {.title = "bits", .right = true},
                              {.title = "group", .right = true},
                              {.title = "method"},
                              {.title = "size", .right = true}};
  if (plan.size_fit) columns.push_back({.title = "error", .right = true});
  Table table(std::move(columns));
  for (const PlannedLayer& layer : plan.layers) {
    const bool quantized = layer.bits != 0;
    std::vector<Cell> cells{label_text(layer.name), quantized ? fmt::to_string(layer.bits) : std::string(name(layer.dtype)),
                            quantized ? fmt::to_string(layer.group_size) : "", quantized ? layer.method : "unquantized",
                            human_bytes(layer.bytes)};
    if (plan.size_fit) cells.emplace_back(layer.expected_error ? fmt::format("{:.5f}", *layer.expected_error) : "");
    table.add(std::move(cells));
  }
  table.print();
  print("\n{}: {} as {}, {} from {}; nothing was written\n", tinted(Tone::kBold, escape(options.out)),
        counted(plan.layers.size(), "tensor"), name(config.format), human_bytes(plan.bytes), human_bytes(plan.source_bytes));
  if (!plan.size_fit) return;
  print("expected: {:.3f} MB, {} {:.4f}{}\n", megabytes(plan.size_fit->expected_bytes), error_title(*plan.size_fit),
        plan.size_fit->expected_error, against_uniform(*plan.size_fit));
}

// What reading the output back found, with what only the work knows.
QuantizeReport joined(QuantizeReport done, QuantizeReport validated) {
  if (!done.up_to_date) {
    for (std::size_t i = 0; i < validated.layers.size(); ++i) take_over(validated.layers[i], done.layers[i]);
  }
  validated.calibration = std::move(done.calibration);
  validated.size_fit = done.size_fit;
  validated.modality = done.modality;
  validated.not_copied = std::move(done.not_copied);
  validated.notes = std::move(done.notes);
  validated.left_out = std::move(done.left_out);
  validated.components = std::move(done.components);
  validated.warnings.insert(validated.warnings.begin(), done.warnings.begin(), done.warnings.end());
  return validated;
}

void print_report(const Options& options, const QuantizeConfig& config, const QuantizeReport& done, bool is_validated,
                  double seconds) {
  if (options.json) return print_json(options, config, done, is_validated, seconds);
  print_done(options, done, seconds);
  if (config.target_model_size) print_bits(done, *config.target_model_size);
  print("\n");
  print_layers(done, config.min_accuracy, options.all_layers);
}

Exit run_quantize(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto settings = read_settings(options.settings);
  if (!settings) return report(settings.error());
  const QuantizeConfig& config = settings->config;
  for (const std::string& warning : settings->warnings) warn(warning);
  const auto input = open_input(options);
  if (!input) return report(input.error());
  if (input->model) {
    for (const std::string& warning : input->model->warnings()) warn(warning);
  }

  std::optional<TokenWindows> tokens;
  if (!options.calibration_tokens.tokens.empty() || !options.calibration_tokens.text.empty()) {
    auto opened = open_tokens(options.calibration_tokens, "--calibration-");
    if (!opened) return report(opened.error());
    tokens = spread_windows(std::move(*opened), config.calibration_samples);
  }

  ProgressBar bar(options.dry_run ? "planning" : "quantizing");
  QuantizeOptions work{.config = config,
                       .calibration = options.calibration,
                       .calibration_tokens = tokens ? &*tokens : nullptr,
                       .loras = parse_loras(options.loras),
                       .sync = !options.no_sync,
                       .resume = options.resume,
                       .force = options.force,
                       .work = bar.work()};
  // When the work begins, so that it does not precede an error about the arguments, nor come after an hour.
  auto note_format = [is_due = !settings->names_format]() mutable {
    if (std::exchange(is_due, false)) note(kDefaultFormat);
  };
  work.work.progress = [&note_format, show = work.work.progress](std::uint64_t at, std::uint64_t total, std::string_view what) {
    note_format();
    return show(at, total, what);
  };
  if (options.dry_run) {
    const auto plan = input->plan(options, work);
    bar.clear();
    if (!plan) return report(plan.error(), settings->spelling);
    note_format();
    print_plan(options, config, *plan);
    return kDone;
  }
  auto done = input->quantize(options, work);
  bar.clear();
  if (!done) return report(done.error(), settings->spelling);
  note_format();
  for (const std::string& text : done->notes) note(text);
  done->warnings = spelled(std::move(done->warnings), settings->spelling);
  for (const std::string& warning : done->warnings) warn(warning);
  note_unquantized(done->components);
  const bool was_done = done->up_to_date;
  if (was_done && !options.json && !options.validate) {
    print("{}: already up to date\n", tinted(Tone::kBold, escape(options.out)));
    return kDone;
  }
  if (options.validate || was_done) {
    auto validated = input->validate(options, config);
    if (!validated) return report(validated.error());
    done = joined(std::move(*done), *std::move(validated));
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  print_report(options, config, *done, options.validate || was_done, seconds);
  return options.validate && !done->passed ? kFoundFalse : kDone;
}

// An option that sets a field of the config; its value is checked with those of the other sources.
CLI::Option* add_field(CLI::App& command, Options& options, const std::string& flags, const std::string& field,
                       const std::string& type, const std::string& help) {
  return command
      .add_option_function<std::string>(
          flags, [&options, field](const std::string& value) { options.settings.fields[field] = value; }, help)
      ->type_name(type)
      ->check(not_empty());
}

void add_calibration(CLI::App& command, Options& options) {
  command
      .add_option("--calibration", options.calibration,
                  "Use statistics of layer inputs to reduce the output error; see docs/calibration.md")
      ->type_name("FILE")
      ->check(not_empty());
  command
      .add_option("--calibration-tokens", options.calibration_tokens.tokens,
                  "Calibrate layer by layer with token ids: .npy, .safetensors, or numbers in a text file")
      ->type_name("FILE")
      ->check(not_empty())
      ->excludes("--calibration");
  command
      .add_option("--calibration-text", options.calibration_tokens.text,
                  "The same with text, with the ballast command of the Python package")
      ->type_name("FILE")
      ->check(not_empty())
      ->excludes("--calibration", "--calibration-tokens");
}

constexpr const char* kFooter =
    "Precedence of settings: command line, BALLAST_* variables, --config, profile.\n"
    "Quality is measured on the bytes written: cosine similarity and relative RMSE\n"
    "of the weights of each layer.\n\n"
    "Examples:\n"
    "  ballast quantize Qwen3-0.6B/ qwen3-4bit/ --format mlx --group-size 64\n"
    "  ballast quantize model.safetensors out/ --bits 2 --validate\n"
    "  ballast quantize model/ out/ --profile edge --keep '*embed*' --resume\n"
    "  ballast quantize model/ out/ --calibration-tokens ids.npy --bits 3\n"
    "  ballast quantize model/ out/ --json | jq '.layers[0].cosine_similarity'";

}  // namespace

void add_quantize(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("quantize", "Quantize weights to 2 to 8 bits and measure the error");
  const auto field = [&](const std::string& flags, const std::string& name, const std::string& type, const std::string& help,
                         std::vector<std::string> choices = {}) {
    options->settings.options[name] = flags.substr(0, flags.find(','));
    set_choices(add_field(*command, *options, flags, name, type, help), std::move(choices));
  };
  command->add_option("IN,--input", options->in, kModelHelp)->required()->type_name("PATH")->check(not_empty());
  command->add_option("OUT,--output", options->out, "Output directory")->required()->type_name("DIR")->check(not_empty());
  field("--bits,--bit-width", "bit_width", "N", "Use N bits per weight: 2, 3, 4, 5, 6 or 8 (default: from the profile)",
        {"2", "3", "4", "5", "6", "8"});
  field("--group-size", "group_size", "N", "Share a scale among N weights: 32, 64, 128, or 256 in Parquet",
        {"32", "64", "128", "256"});
  field("--type", "type", "TYPE",
        "Store weights as int (default), or as fp8, mxfp4, mxfp8 or nvfp4, which fix bits and group size; not in Parquet",
        {"int", "fp8", "mxfp4", "mxfp8", "nvfp4"});
  field(
      "--format", "format", "FORMAT",
      "Write parquet (default; for Ballast and data tools), mlx (for MLX and mlx-lm), or compressed-tensors or hf-fp8 (for vLLM, "
      "SGLang and transformers)",
      {"parquet", "mlx", "compressed-tensors", "hf-fp8"});
  field("--strategy", "strategy", "NAME", "Share a scale in compressed-tensors among a group (default), channel, tensor or block",
        {"tensor", "channel", "group", "block"});
  options->settings.options["asymmetric"] = "--asymmetric";
  command->add_flag_callback(
      "--asymmetric", [options] { options->settings.fields["asymmetric"] = std::string("true"); },
      "Store zero points in compressed-tensors");
  field("--method", "method", "METHOD",
        "Choose scales by auto (default; for the best outputs), search (for the least error of the weights), rtn (fast, as MLX "
        "rounds) or hqq",
        {"auto", "search", "rtn", "hqq"});
  field("--profile", "deployment_profile", "NAME",
        "Use the defaults for edge (2 bits), local (4 bits, default) or cloud (8 bits)", {"edge", "local", "cloud"});
  command->add_option("--config", options->settings.config, "Read settings from a YAML file; see docs/quantization.md")
      ->type_name("FILE");
  add_calibration(*command, *options);
  field("--target-size-mb", "target_model_size_mb", "MB",
        "Choose the bits of each layer so that the output has this size, in 10^6 bytes");
  field("--modality", "modality", "NAME", "Treat the model as text, code, image or audio (default: detected)",
        {"text", "code", "image", "audio"});
  field("--recipe", "recipe", "NAME",
        "Use two bit widths, the higher for sensitive layers: mixed_2_6, mixed_3_4, mixed_3_6 or mixed_4_6",
        {"mixed_2_6", "mixed_3_4", "mixed_3_6", "mixed_4_6"});
  command->add_option("--keep", options->settings.keep, "Leave matching tensors unquantized; repeatable")
      ->type_name("GLOB")
      ->expected(1)
      ->take_all();
  field("--min-accuracy", "min_accuracy", "X", "Raise the bits of a layer until its cosine similarity is at least X");
  options->settings.options["sensitive_layer_names"] = "--keep";
  options->settings.options["fail_fast"] = "--fail-fast";
  options->settings.options["calibration_tokens"] = "--calibration-tokens";
  command->add_flag_callback(
      "--fail-fast", [options] { options->settings.fields["fail_fast"] = std::string("true"); },
      "Stop at the first layer below --min-accuracy and write nothing");
  add_lora(*command, options->loras);
  command->add_flag("--validate", options->validate, "Read the output back and compare it with the input");
  command->add_flag("--resume", options->resume, kResumeHelp);
  command->add_flag("--force", options->force, kForceHelp);
  command->add_flag("--dry-run", options->dry_run, "Print the plan and write nothing");
  command->add_flag("--no-sync", options->no_sync, kNoSyncHelp);
  command->add_flag("--layers", options->all_layers, "List all layers, not only the worst");
  field("--threads", "num_threads", "N", "Use N threads (default: one per core)");
  field("--memory-limit", "max_memory_limit_mb", "MIB", "Use at most MIB mebibytes of memory (default 384)");
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(kFooter);
  command->callback([options, &run] {
    const TokenOptions& tokens = options->calibration_tokens;
    options->settings.has_calibration = !options->calibration.empty() || !tokens.tokens.empty() || !tokens.text.empty();
    run = [options] { return run_quantize(*options); };
  });
}

}  // namespace ballast::cli
