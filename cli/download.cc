#include <chrono>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/download.h>
#include <ballast/text.h>

#include "command.h"
#include "format.h"
#include "spelling.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string uri;
  std::string folder;
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  bool force = false;
  ReadOptions read;
  bool json = false;
};

void print_json(const DownloadReport& done, double seconds) {
  Json files = Json::array();
  for (const DownloadedFile& file : done.files) {
    files.push_back({{"path", file.path}, {"size", file.size}, {"was_there", file.already_complete}, {"checked", nullptr}});
    if (!file.checksum.empty()) files.back()["checked"] = file.checksum;
  }
  const Json json{
      {"path", done.folder}, {"files", std::move(files)}, {"fetched_bytes", done.fetched_bytes}, {"download_time_s", seconds}};
  print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void print_text(const DownloadReport& done, double seconds) {
  std::uint64_t bytes = 0;
  std::size_t complete = 0;
  std::size_t verified = 0;
  for (const DownloadedFile& file : done.files) {
    bytes += file.size;
    complete += file.already_complete ? 1 : 0;
    verified += file.checksum.empty() ? 0 : 1;
  }
  std::string notes;
  if (complete > 0) notes += fmt::format(", {} already complete", complete == done.files.size() ? "all" : grouped(complete));
  if (verified > 0) notes += fmt::format(", checksums of {} verified", verified == done.files.size() ? "all" : grouped(verified));
  const auto rate = static_cast<std::uint64_t>(static_cast<double>(done.fetched_bytes) / seconds);
  print("{}: {}, {}{}{}\n", tinted(Tone::kBold, escape(done.folder)), counted(done.files.size(), "file"), human_bytes(bytes),
        notes, seconds < 1 ? "" : tinted(Tone::kDim, fmt::format("  ({:.1f} s, {}/s)", seconds, human_bytes(rate))));
}

Exit run_download(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  ProgressBar bar("downloading");
  const auto done = download(options.uri, options.folder,
                             {.include = options.include,
                              .exclude = options.exclude,
                              .component = options.read.component,
                              .variant = options.read.variant,
                              .force = options.force,
                              .work = bar.work()});
  bar.clear();
  if (!done) return report(done.error(), {{"exclude", "--exclude"}, {"include", "--include"}});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    print_json(*done, seconds);
  } else {
    print_text(*done, seconds);
  }
  return kDone;
}

}  // namespace

void add_download(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("download", "Download the files of a model and check them");
  command->add_option("URI", options->uri, "https://…, s3://bucket/folder or hf://org/repo[@revision][/file]")
      ->required()
      ->check(not_empty());
  command->add_option("DIR", options->folder, "Output directory (default for hf://: the cache of the hub)");
  command->add_option("--include", options->include, "Download only matching files; repeatable")->type_name("GLOB");
  command->add_option("--exclude", options->exclude, "Leave out matching files; repeatable")->type_name("GLOB");
  command->add_flag("--force", options->force, kForceHelp);
  add_directory_options(*command, options->read);
  add_json(*command, options->json);
  for (CLI::Option* const option : command->get_options()) {
    if (option->get_items_expected_max() > 1) option->expected(1)->take_all();
  }
  command->footer(
      "Run the same command again to resume an interrupted download. Checksums are\n"
      "checked if the server sends them. Tokens and keys come from the environment\n"
      "(HF_TOKEN, AWS_ACCESS_KEY_ID …); see docs/remote.md.\n\n"
      "Examples:\n"
      "  ballast download hf://Qwen/Qwen3-0.6B Qwen3-0.6B/\n"
      "  ballast download hf://Qwen/Qwen3-0.6B@main Qwen3-0.6B/ --include '*.json'\n"
      "  ballast download s3://bucket/models/llama llama/");
  command->callback([options, &run] { run = [options] { return run_download(*options); }; });
}

}  // namespace ballast::cli
