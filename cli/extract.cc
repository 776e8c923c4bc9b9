#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <ballast/extract.h>
#include <ballast/text.h>

#include "command.h"
#include "format.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string path;
  std::string tensor;
  std::string slice;
  std::string out = "-";
  bool force = false;
  ReadOptions read;
};

Result<void> write_out(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return {};
  return std::unexpected(Error{.code = Errc::kWrite, .message = "cannot write to standard output"});
}

Result<DType> extract(const Options& options, const Model& model, std::span<const Slice> slices) {
  ProgressBar bar("extracting");
  if (options.out != "-") {
    return save_npy(model, options.tensor, slices, options.out, {.force = options.force, .work = bar.work()});
  }
  return write_npy(model, options.tensor, slices, write_out, bar.work());
}

Exit run_extract(const Options& options) {
  if (options.out == "-" && ::isatty(STDOUT_FILENO) == 1) {
    return report({.code = Errc::kInvalidArgument, .message = "standard output is a terminal; give a file with -o"});
  }
  std::vector<Slice> slices;
  if (!options.slice.empty()) {
    auto parsed = parse_slices(options.slice);
    if (!parsed) return report(std::move(parsed.error()).at("--slice"));
    slices = std::move(*parsed);
  }
  const auto model = open_values(options.path, options.read);
  if (!model) return report(model.error());
  for (const std::string& warning : model->warnings()) warn(warning);
  const auto dtype = extract(options, *model, slices);
  if (!dtype) return report(dtype.error());
  if (const TensorInfo* const tensor = model->find(options.tensor); tensor->dtype != *dtype) {
    note(fmt::format("NumPy has no {}; values are written as {}", name(tensor->dtype), name(*dtype)));
  }
  return kDone;
}

}  // namespace

void add_extract(CLI::App& app, Run& run) {
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("extract", "Write one tensor, or a part of it, as a .npy file");
  add_path(*command, options->path, "IN");
  command->add_option("NAME", options->tensor, "Name of the tensor")->required();
  command->add_option("--slice", options->slice, "Extract a part of each dimension, as start:stop:step: '0:10,:,::2'")
      ->type_name("SLICES");
  command->add_option("-o,--output", options->out, "Write to FILE (default: standard output)")->type_name("FILE");
  command->add_flag("--force", options->force, "Replace FILE even if it is not a .npy file");
  add_read_options(*command, options->read);
  command->footer(
      "NumPy has no BF16, F8 or F4: they are written as F32, without loss.\n\n"
      "Examples:\n"
      "  ballast extract model.safetensors model.norm.weight -o norm.npy\n"
      "  ballast extract Qwen3-0.6B/ model.embed_tokens.weight --slice '0:10' -o a.npy");
  command->callback([options, &run] { run = [options] { return run_extract(*options); }; });
}

}  // namespace ballast::cli
