#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/quantize.h>
#include <ballast/text.h>
#include <ballast/verify.h>

#include "command.h"
#include "format.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string path;
  bool values = false;
  bool sha256 = false;
  bool json = false;
  unsigned threads = 0;
  ReadOptions read;
};

std::uint64_t count_defects(const VerifyReport& found, const std::string& check) {
  return static_cast<std::uint64_t>(std::ranges::count(found.defects, check, &Defect::check));
}

void print_json(const std::string& path, const VerifyReport& found) {
  Json checks = Json::array();
  for (const std::string& check : found.checks) checks.push_back({{"name", check}, {"ok", count_defects(found, check) == 0}});
  Json defects = Json::array();
  for (const Defect& defect : found.defects) {
    defects.push_back({{"check", defect.check}, {"message", defect.message}});
    if (!defect.component.empty()) defects.back()["component"] = defect.component;
  }
  Json files = Json::array();
  for (const VerifiedFile& file : found.files) {
    files.push_back({{"path", file.path}, {"size", file.size}, {"tensors", file.tensors}});
    if (!file.sha256.empty()) files.back()["sha256"] = file.sha256;
  }
  Json json{{"path", path},
            {"ok", found.ok()},
            {"checks", std::move(checks)},
            {"defects", std::move(defects)},
            {"skipped", found.skipped},
            {"warnings", found.warnings},
            {"files", std::move(files)},
            {"tensor_count", found.tensors},
            {"bytes", found.bytes}};
  if (!found.components.empty()) json["components"] = found.components;
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void print_defects(const VerifyReport& found, const std::string& check) {
  constexpr std::uint64_t kMost = 20;
  std::uint64_t shown = 0;
  for (const Defect& defect : found.defects) {
    if (defect.check != check || ++shown > kMost) continue;
    print_wrapped(6, defect.message);
  }
  if (shown > kMost) print("      … {} more; --json lists them all\n", grouped(shown - kMost));
}

void print_text(const std::string& path, const VerifyReport& found) {
  for (const std::string& warning : found.warnings) warn(warning);
  const std::string verdict =
      found.ok() ? tinted(Tone::kGreen, "ok") : tinted(Tone::kRed, counted(found.defects.size(), "defect"));
  print("{}: {}  {}\n", tinted(Tone::kBold, escape(path)), verdict,
        fmt::format("({} in {}, {})", counted(found.tensors, "tensor"), counted(found.files.size(), "file"),
                    human_bytes(found.bytes)));
  for (const std::string& check : found.checks) {
    const std::uint64_t defects = count_defects(found, check);
    if (defects == 0) {
      print("  {} {}\n", tinted(Tone::kGreen, "✓"), check);
    } else {
      print("  {} {:<13} {}\n", tinted(Tone::kRed, "✗"), check, counted(defects, "defect"));
      print_defects(found, check);
    }
  }
  for (const std::string& skipped : found.skipped) print("  {} {}\n", tinted(Tone::kDim, "–"), skipped);
  for (const VerifiedFile& file : found.files) {
    if (!file.sha256.empty()) print("{}  {}\n", file.sha256, escape(file.path));
  }
}

Exit run_verify(const Options& options) {
  ProgressBar bar("verifying");
  const auto found = verify_model(
      options.path,
      {.open = options.read.open(), .values = options.values, .sha256 = options.sha256, .work = bar.work(options.threads)});
  bar.clear();
  if (!found) return report(found.error());
  if (options.json) {
    print_json(without_secrets(options.path), *found);
  } else {
    print_text(without_secrets(options.path), *found);
  }
  return found->ok() ? kDone : kFoundFalse;
}

}  // namespace

void add_verify(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("verify", "Check headers, offsets, shards, config and tensors");
  add_path(*command, options->path);
  command->add_flag("--values", options->values, "Also check for NaN, Inf, and weights that are constant or almost all zero");
  command->add_flag("--sha256", options->sha256, "Also print the SHA-256 of each file");
  add_threads(*command, options->threads);
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "Exit codes: 0 no defects, 1 defects found, 3 the model cannot be read.\n\n"
      "Examples:\n"
      "  ballast verify model.safetensors\n"
      "  ballast verify Qwen3-0.6B/ --values --sha256");
  command->callback([options, &run] { run = [options] { return run_verify(*options); }; });
}

}  // namespace ballast::cli
