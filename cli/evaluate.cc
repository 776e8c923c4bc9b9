#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/evaluate.h>
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
  TokenOptions tokens;
  std::string against;
  std::uint64_t memory_limit_mb = 0;
  unsigned threads = 0;
  ReadOptions read;
  bool json = false;
};

Json json_of(const Options& options, const TokenWindows& tokens, const Evaluation& found) {
  Json json{{"model", without_secrets(options.model)},
            {"perplexity", found.perplexity},
            {"perplexity_stderr", found.perplexity_stderr},
            {"loss", found.loss},
            {"tokens", found.tokens},
            {"windows", found.windows},
            {"length", found.length},
            {"unused_tokens", tokens.unused}};
  if (!found.against) return json;
  const EvaluationAgainst& against = *found.against;
  json.update(Json{{"against", without_secrets(options.against)},
                   {"original_perplexity", against.perplexity},
                   {"perplexity_ratio", against.perplexity_ratio},
                   {"kl_mean", against.kl_mean},
                   {"kl_stderr", against.kl_stderr},
                   {"kl_p99", against.kl_p99},
                   {"top1_agreement", against.top1_agreement},
                   {"worst_layer", against.worst_layer},
                   {"layer_errors", against.layer_errors}});
  return json;
}

void print_text(const Options& options, const Evaluation& found) {
  print("{}: perplexity {:.4g} ± {:.2g}\n", tinted(Tone::kBold, escape(without_secrets(options.model))), found.perplexity,
        found.perplexity_stderr);
  print("{} tokens scored in {} of {}\n", grouped(found.tokens), counted(found.windows, "window"), grouped(found.length));
  if (!found.against) return;
  const EvaluationAgainst& against = *found.against;
  print("\nagainst {}\n", escape(without_secrets(options.against)));
  print("  perplexity      {:.4g}, ratio {:.4f}\n", against.perplexity, against.perplexity_ratio);
  print("  KL divergence   {:.4g} ± {:.2g} mean, {:.4g} for 99 % of the tokens\n", against.kl_mean, against.kl_stderr,
        against.kl_p99);
  print("  top-1 agreement {:.2f} %\n", 100 * against.top1_agreement);
  if (against.layer_errors.empty()) return;
  print("  hidden states   differ most after layer {}, by {:.2f} %\n", against.worst_layer,
        100 * against.layer_errors[against.worst_layer]);
}

Exit run_evaluate(const Options& options) {
  const auto tokens = open_tokens(options.tokens);
  if (!tokens) return report(tokens.error());
  const auto model = open_decoded(options.model, options.read);
  if (!model) return report(model.error());
  std::optional<Model> original;
  if (!options.against.empty()) {
    auto opened = open_decoded(options.against, options.read);
    if (!opened) return report(opened.error());
    original.emplace(std::move(*opened));
  }
  ProgressBar bar("evaluating");
  const auto found =
      evaluate_model(*model, *tokens, original ? &*original : nullptr, bar.work(options.threads, options.memory_limit_mb << 20));
  bar.clear();
  if (!found) return report(found.error());
  if (options.json) {
    print("{}\n", json_of(options, *tokens, *found).dump(2, ' ', true, Json::error_handler_t::replace));
  } else {
    print_text(options, *found);
  }
  return kDone;
}

}  // namespace

void add_evaluate(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("evaluate", "Measure the perplexity of a language model");
  add_path(*command, options->model, "MODEL");
  add_tokens(*command, options->tokens);
  command->add_option("--against", options->against, "Compare with the original: KL divergence and top-1 agreement")
      ->type_name("ORIGINAL")
      ->check(not_empty());
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
      "  ballast evaluate Qwen3-0.6B/ --tokens wiki.npy\n"
      "  ballast evaluate small/ --tokens wiki.npy --against Qwen3-0.6B/ --json");
  command->callback([options, &run] {
    check_tokens_given(options->tokens);
    run = [options] { return run_evaluate(*options); };
  });
}

}  // namespace ballast::cli
