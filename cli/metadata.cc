#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/edit_metadata.h>
#include <ballast/text.h>

#include "arguments.h"
#include "command.h"
#include "format.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string path;
  std::vector<std::string> set;
  std::vector<std::string> unset;
  ReadOptions read;
  bool json = false;
};

Exit edit(const Options& options) {
  MetadataEdit edit{.unset = options.unset};
  for (const std::string& argument : options.set) {
    auto pair = parse_pair("--set", "KEY=VALUE", argument);
    if (!pair) return report(pair.error());
    edit.set[std::move(pair->first)] = std::move(pair->second);
  }
  ProgressBar bar("rewriting");
  const auto changed = edit_metadata(options.path, edit, options.read.open(), bar.work());
  bar.clear();
  if (!changed) return report(changed.error());
  if (options.json) return kDone;
  switch (*changed) {
    case MetadataChange::kNone: complain(fmt::format("{}: nothing to change", escape(without_secrets(options.path)))); break;
    case MetadataChange::kInPlace: complain(fmt::format("{}: changed in place", escape(without_secrets(options.path)))); break;
    case MetadataChange::kRewritten:
      complain(fmt::format("{}: replaced by a new file", escape(without_secrets(options.path))));
      break;
  }
  return kDone;
}

Exit run_metadata(const Options& options) {
  if (!options.set.empty() || !options.unset.empty()) {
    if (const Exit code = edit(options); code != kDone) return code;
  }
  const auto model = Model::open(options.path, options.read.open());
  if (!model) return report(model.error());
  for (const std::string& warning : model->warnings()) warn(warning);
  if (options.json) {
    Json metadata = Json::object();
    for (const auto& [key, value] : model->metadata()) metadata[key] = value;
    print("{}\n", Json{{"path", without_secrets(options.path)}, {"metadata", metadata}}.dump(2, ' ', true,
                                                                                             Json::error_handler_t::replace));
    return kDone;
  }
  for (const auto& [key, value] : model->metadata()) print("{} = {}\n", label_text(key), escape(value));
  if (model->metadata().empty()) complain(fmt::format("{}: no metadata", escape(without_secrets(options.path))));
  return kDone;
}

}  // namespace

void add_metadata(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("metadata", "Show or change the metadata of a file");
  command->add_option("FILE", options->path, "A .safetensors file; to show metadata, also a directory, index or URI")
      ->required()
      ->check(not_empty());
  command->add_option("--set", options->set, "Set a key; repeatable")->type_name("K=V")->expected(1)->take_all();
  command->add_option("--unset", options->unset, "Remove a key; repeatable")->type_name("K")->expected(1)->take_all();
  add_read_options(*command, options->read);
  add_json(*command, options->json);
  command->footer(
      "The file is edited in place if the change fits into the header, otherwise it is\n"
      "replaced by a new one. Tensors do not change.\n\n"
      "Examples:\n"
      "  ballast metadata model.safetensors\n"
      "  ballast metadata model.safetensors --set license=apache-2.0 --unset note");
  command->callback([options, &run] { run = [options] { return run_metadata(*options); }; });
}

}  // namespace ballast::cli
