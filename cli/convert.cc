#include <algorithm>
#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/convert_model.h>
#include <ballast/text.h>

#include "arguments.h"
#include "command.h"
#include "format.h"
#include "pipeline.h"
#include "spelling.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

const Spelling kSpelling{{"dtype", "--dtype"},
                         {"exclude", "--exclude"},
                         {"include", "--include"},
                         {"rename", "--rename"},
                         {"dtype_rules", "--dtype GLOB=DTYPE"},
                         {"component", "--component"}};

struct Options {
  std::string in;
  std::string out;
  std::vector<std::string> dtypes;
  std::string format;
  std::string max_shard_size;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  std::vector<std::string> renames;
  std::vector<std::string> metadata;
  std::vector<std::string> loras;
  bool allow_loss = false;
  bool resume = false;
  bool force = false;
  bool no_sync = false;
  unsigned threads = 0;
  std::uint64_t memory_limit_mb = 384;
  ReadOptions read;
  bool json = false;
};

Result<void> set_dtypes(const Options& options, ConvertOptions& convert) {
  for (const std::string& argument : options.dtypes) {
    const std::size_t equals = argument.rfind('=');
    const auto dtype = parse_dtype_argument(equals == std::string::npos ? argument : argument.substr(equals + 1));
    if (!dtype) return std::unexpected(Error(dtype.error()).at("--dtype"));
    if (equals == std::string::npos) {
      convert.dtype = *dtype;
    } else {
      convert.dtype_rules.push_back({.pattern = argument.substr(0, equals), .dtype = *dtype});
    }
  }
  return {};
}

Result<ConvertOptions> convert_options(const Options& options) {
  ConvertOptions convert{.include = options.include,
                         .exclude = options.exclude,
                         .loras = parse_loras(options.loras),
                         .on_loss = options.allow_loss ? OnLoss::kAllow : OnLoss::kRefuse,
                         .resume = options.resume,
                         .force = options.force};
  convert.sink.sync = !options.no_sync;
  if (auto set = set_dtypes(options, convert); !set) return std::unexpected(set.error());
  if (options.format == "safetensors") convert.sink.format = Format::kSafetensors;
  if (options.format == "mlx-json") convert.sink.format = Format::kMlxJson;
  if (!options.max_shard_size.empty()) {
    const auto bytes = parse_size(options.max_shard_size);
    if (!bytes) return std::unexpected(Error(bytes.error()).at("--max-shard-size"));
    convert.sink.max_shard_bytes = *bytes;
  }
  for (const std::string& argument : options.renames) {
    auto rename = parse_pair("--rename", "FROM=TO", argument);
    if (!rename) return std::unexpected(rename.error());
    convert.renames.push_back({.from = std::move(rename->first), .to = std::move(rename->second)});
  }
  return convert;
}

// The model's metadata with the changes of --metadata; empty if there are none.
Result<std::optional<Metadata>> change_metadata(const Options& options, Metadata metadata) {
  if (options.metadata.empty()) return std::nullopt;
  for (const std::string& argument : options.metadata) {
    if (!argument.contains('=') && metadata.erase(argument) == 1) continue;
    const auto pair = parse_pair("--metadata", "KEY=VALUE, or an existing KEY to remove", argument);
    if (!pair) return std::unexpected(pair.error());
    metadata[pair->first] = pair->second;
  }
  return metadata;
}

void print_json(const Options& options, std::span<const std::string> before, const ConvertReport& done, double seconds) {
  std::vector<std::string> warnings(before.begin(), before.end());
  warnings.insert(warnings.end(), done.warnings.begin(), done.warnings.end());
  Json files = Json::array();
  for (const ConvertedFile& file : done.files) files.push_back({{"path", file.path}, {"size", file.bytes}});
  Json json{{"input", without_secrets(options.in)},
            {"output", options.out},
            {"files", std::move(files)},
            {"tensor_count", done.tensors},
            {"converted", done.converted},
            {"data_bytes", done.data_bytes},
            {"not_copied", done.not_copied},
            {"seconds", seconds},
            {"notes", done.notes},
            {"warnings", warnings}};
  if (!done.components.empty()) json["components"] = components_json(done.components);
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void print_text(const Options& options, const ConvertReport& done, double seconds) {
  std::uint64_t bytes = 0;
  for (const ConvertedFile& file : done.files) bytes += file.bytes;
  const std::string rate = human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-3)));
  print("{}: {} in {}, {}, {} converted, {} copied{}\n", tinted(Tone::kBold, escape(options.out)),
        counted(done.tensors, "tensor"), counted(done.files.size(), "file"), human_bytes(bytes), grouped(done.converted),
        grouped(done.tensors - done.converted),
        seconds < 1 ? "" : tinted(Tone::kDim, fmt::format("  ({:.1f} s, {}/s)", seconds, rate)));
}

// `before`: warnings that are printed already.
Exit finish(const Options& options, std::span<const std::string> before, const ConvertReport& done,
            std::chrono::steady_clock::time_point start) {
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    print_json(options, before, done, seconds);
    return kDone;
  }
  for (const std::string& warning : done.warnings) warn(warning);
  for (const std::string& text : done.notes) note(text);
  print_text(options, done, seconds);
  return kDone;
}

// All components of a pipeline.
Exit convert_components(const Options& options, ConvertOptions convert, std::chrono::steady_clock::time_point start) {
  if (!options.metadata.empty()) {
    return report(
        {.code = Errc::kInvalidArgument, .message = "--metadata: not possible for all components at once; give component"});
  }
  ProgressBar bar("converting");
  convert.work = bar.work(options.threads, options.memory_limit_mb << 20);
  auto done = convert_pipeline(options.in, options.out, convert, options.read.open());
  bar.clear();
  if (!done) return report(done.error(), kSpelling);
  done->warnings = spelled(std::move(done->warnings), kSpelling);
  return finish(options, {}, *done, start);
}

Exit run_convert(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  auto convert = convert_options(options);
  if (!convert) return report(convert.error());
  const auto model = open_to_convert(options.in, options.out, *convert, options.read.open());
  if (!model) {
    const auto components = components_instead(model.error(), options.in, options.read.open());
    if (!components) return report(components.error());
    return components->empty() ? report(model.error()) : convert_components(options, *convert, start);
  }
  if (!options.json) {
    for (const std::string& warning : model->warnings()) warn(warning);
  }
  auto metadata = change_metadata(options, model->metadata());
  if (!metadata) return report(metadata.error());
  convert->metadata = std::move(*metadata);
  ProgressBar bar("converting");
  convert->work = bar.work(options.threads, options.memory_limit_mb << 20);
  auto done = convert_model(*model, options.out, *convert);
  bar.clear();
  if (!done) return report(done.error(), kSpelling);
  done->warnings = spelled(std::move(done->warnings), kSpelling);
  return finish(options, model->warnings(), *done, start);
}

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("convert", "Change dtypes, names, shards, container or metadata");
  add_path(*command, options->in, "IN");
  command->add_option("OUT", options->out, kOutHelp)->required()->check(not_empty());
  set_choices(
      command
          ->add_option(
              "--dtype", options->dtypes,
              "Convert all floats, or with an integer DTYPE all integers: f32, bf16, f8_e4m3, i8 …; GLOB=DTYPE converts matching "
              "tensors; repeatable")
          ->type_name("DTYPE"),
      {"f64", "f32", "f16", "bf16", "f8_e4m3", "f8_e5m2", "i64", "i32", "i16", "i8", "u8"});
  set_choices(command->add_option("--format", options->format, "Write safetensors or mlx-json (default: by the name of OUT)")
                  ->type_name("FORMAT")
                  ->check(one_of({"safetensors", "mlx-json"})),
              {"safetensors", "mlx-json"});
  command
      ->add_option("--max-shard-size", options->max_shard_size,
                   "Split the weights of a directory into files of at most SIZE: 5GB")
      ->type_name("SIZE");
  command->add_option("--include", options->include, "Convert only matching tensors; repeatable")->type_name("GLOB");
  command->add_option("--exclude", options->exclude, "Leave out matching tensors; repeatable")->type_name("GLOB");
  command->add_option("--rename", options->renames, "Rename tensors; each * in TO takes what a * in FROM matched; repeatable")
      ->type_name("FROM=TO");
  command->add_option("--metadata", options->metadata, "Set a metadata key; K alone removes it; repeatable")->type_name("K=V");
  add_lora(*command, options->loras);
  command->add_flag("--allow-loss", options->allow_loss, "Convert integers that do not fit, and report how many");
  command->add_flag("--resume", options->resume, kResumeHelp);
  command->add_flag("--force", options->force, kForceHelp);
  command->add_flag("--no-sync", options->no_sync, kNoSyncHelp);
  add_threads(*command, options->threads);
  command->add_option("--memory-limit", options->memory_limit_mb, "Use at most MIB mebibytes of memory (default 384)")
      ->type_name("MIB")
      ->check(whole_number(16, 1'048'576));
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  for (CLI::Option* const option : command->get_options()) {
    if (option->get_items_expected_max() > 1) option->expected(1)->take_all();
  }
  command->footer(
      "Files and folders beside the weights are copied from directory to directory,\n"
      "except weights of other formats. Weight files keep their stem. OUT may be IN: it\n"
      "is replaced once the output is complete.\n\n"
      "Examples:\n"
      "  ballast convert Qwen3-0.6B/ out/ --dtype bf16 --max-shard-size 2GB\n"
      "  ballast convert in.safetensors out.safetensors --dtype f16 --dtype '*norm=f32'\n"
      "  ballast convert in.safetensors out.safetensors --rename 'model.*=decoder.*'\n"
      "  ballast convert Qwen3-0.6B/ out/ --lora adapter/ --lora style.safetensors=0.5\n"
      "  ballast convert in.safetensors weights.mlx");
  command->callback([options, &run] { run = [options] { return run_convert(*options); }; });
}

}  // namespace ballast::cli
