#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/quantize.h>
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

struct Options {
  std::string in;
  std::string out;
  std::string dtype;
  std::string max_shard_size;
  unsigned threads = 0;
  std::uint64_t memory_limit_mb = 384;
  bool force = false;
  bool no_sync = false;
  ReadOptions read;
  bool json = false;
};

Exit run_dequantize(const Options& options) {
  DequantizeOptions settings{
      .open = options.read.open(), .sink = {.metadata = {{"format", "pt"}}, .sync = !options.no_sync}, .force = options.force};
  if (!options.dtype.empty()) {
    const auto dtype = parse_dtype_argument(options.dtype);
    if (!dtype) return report(Error(dtype.error()).at("--dtype"));
    settings.dtype = *dtype;
  }
  if (!options.max_shard_size.empty()) {
    const auto bytes = parse_size(options.max_shard_size);
    if (!bytes) return report(Error(bytes.error()).at("--max-shard-size"));
    settings.sink.max_shard_bytes = *bytes;
  }
  ProgressBar bar("dequantizing");
  settings.work = bar.work(options.threads, options.memory_limit_mb << 20);
  const auto done = dequantize_model(options.in, options.out, settings);
  bar.clear();
  if (!done) return report(done.error(), {{"dtype", "--dtype"}});
  for (const std::string& warning : done->warnings) warn(warning);
  if (!options.json) {
    for (const std::string& text : done->notes) note(text);
  }
  std::uint64_t bytes = 0;
  Json files = Json::array();
  for (const ConvertedFile& file : done->files) {
    bytes += file.bytes;
    files.push_back({{"path", file.path}, {"size", file.bytes}});
  }
  if (options.json) {
    Json json{{"input", without_secrets(options.in)}, {"output", options.out},          {"files", std::move(files)},
              {"tensor_count", done->tensors},        {"dequantized", done->converted}, {"data_bytes", done->data_bytes},
              {"not_copied", done->not_copied},       {"notes", done->notes},           {"warnings", done->warnings}};
    if (!done->components.empty()) json["components"] = components_json(done->components);
    print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
  } else {
    print("{}: {} in {}, {}, {} dequantized, {} copied\n", tinted(Tone::kBold, escape(options.out)),
          counted(done->tensors, "tensor"), counted(done->files.size(), "file"), human_bytes(bytes), grouped(done->converted),
          grouped(done->tensors - done->converted));
  }
  return kDone;
}

}  // namespace

void add_dequantize(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("dequantize", "Write the float weights of a quantized model");
  command->add_option("IN", options->in, kQuantizedHelp)->required()->check(not_empty());
  command->add_option("OUT", options->out, kOutHelp)->required()->check(not_empty());
  set_choices(
      command->add_option("--dtype", options->dtype, "Write f64, f32, f16 or bf16 (default: the original dtype of each tensor)")
          ->type_name("DTYPE"),
      {"f64", "f32", "f16", "bf16"});
  command
      ->add_option("--max-shard-size", options->max_shard_size,
                   "Split the weights of a directory into files of at most SIZE: 5GB")
      ->type_name("SIZE");
  command->add_flag("--force", options->force, kForceHelp);
  command->add_flag("--no-sync", options->no_sync, kNoSyncHelp);
  add_threads(*command, options->threads);
  command->add_option("--memory-limit", options->memory_limit_mb, "Use at most MIB mebibytes of memory (default 384)")
      ->type_name("MIB")
      ->check(whole_number(16, 1'048'576));
  add_directory_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "MLX weights come out bit for bit as mlx.core.dequantize gives them on a CPU.\n\n"
      "Examples:\n"
      "  ballast dequantize qwen3-4bit/ restored/\n"
      "  ballast dequantize out/ restored.safetensors --dtype f32");
  command->callback([options, &run] { run = [options] { return run_dequantize(*options); }; });
}

}  // namespace ballast::cli
