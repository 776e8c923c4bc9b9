#include <cstdint>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/calibrate.h>
#include <ballast/text.h>

#include "command.h"
#include "format.h"
#include "terminal.h"
#include "tokens.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  std::string out;
  TokenOptions tokens;
  std::uint64_t samples = 0;
  bool hessian = false;
  bool resume = false;
  std::uint64_t memory_limit_mb = 0;
  unsigned threads = 0;
  ReadOptions read;
  bool json = false;
};

Exit run_calibrate(const Options& options) {
  auto windows = open_tokens(options.tokens);
  if (!windows) return report(windows.error());
  const TokenWindows tokens = spread_windows(std::move(*windows), options.samples);
  const auto model = open_decoded(options.model, options.read);
  if (!model) return report(model.error());
  ProgressBar bar("calibrating");
  const auto found = calibrate_model(
      *model, tokens, options.out,
      {.hessian = options.hessian, .resume = options.resume, .work = bar.work(options.threads, options.memory_limit_mb << 20)});
  bar.clear();
  if (!found) return report(found.error());
  if (options.json) {
    const Json json{{"model", without_secrets(options.model)},
                    {"out", options.out},
                    {"weights", found->weights},
                    {"tokens", found->tokens},
                    {"windows", found->windows},
                    {"hessian", options.hessian},
                    {"resumed_layers", found->resumed_layers},
                    {"unused_tokens", tokens.unused},
                    {"bytes", found->bytes}};
    print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
    return kDone;
  }
  print("{}: statistics of {}{}, {}\n", tinted(Tone::kBold, escape(options.out)), counted(found->weights, "weight"),
        options.hessian ? " with Hessians" : "", human_bytes(found->bytes));
  print("{} tokens in {} of {}\n", grouped(found->tokens), counted(found->windows, "window"), grouped(tokens.length));
  if (found->resumed_layers > 0) print("resumed after {}\n", counted(found->resumed_layers, "layer"));
  return kDone;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("calibrate", "Record activation statistics of a language model");
  add_path(*command, options->model, "MODEL");
  command->add_option("-o,--output", options->out, "Statistics file to write, for quantize --calibration")
      ->type_name("STATS")
      ->required()
      ->check(not_empty());
  add_tokens(*command, options->tokens);
  command->add_option("--samples", options->samples, "Use N windows, evenly spread (default: all)")
      ->type_name("N")
      ->check(whole_number(1, 1 << 30));
  command->add_flag("--hessian", options->hessian, "Also record Hessians, for GPTQ");
  command->add_flag("--resume", options->resume, "Keep finished layers in STATS.incomplete if interrupted, and resume from them");
  command->add_option("--memory-limit", options->memory_limit_mb, "Use at most MIB mebibytes of memory (default 1024)")
      ->type_name("MIB")
      ->check(whole_number(64, 1 << 24));
  add_threads(*command, options->threads);
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "Runs llama, mistral, qwen2, qwen3, gemma3, mixtral and qwen3_moe models in F32,\n"
      "layer by layer; quantized weights are decoded. Needs OpenBLAS.\n\n"
      "Examples:\n"
      "  ballast calibrate Qwen3-0.6B/ -o stats.safetensors --tokens wiki.npy --hessian\n"
      "  ballast quantize Qwen3-0.6B/ out/ --calibration stats.safetensors");
  command->callback([options, &run] {
    check_tokens_given(options->tokens);
    run = [options] { return run_calibrate(*options); };
  });
}

}  // namespace ballast::cli
