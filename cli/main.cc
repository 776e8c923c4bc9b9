#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>

#include <ballast/text.h>
#include <ballast/version.h>
#include <ballast/weights.h>

#include "command.h"
#include "display_width.h"
#include "spelling.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

// One entry of help: a name, and from column 26 on a description, wrapped at column 80.
std::string two_columns(const std::string& name, const std::string& description) {
  constexpr std::size_t kColumn = 26;
  constexpr std::size_t kWidth = 80;
  std::string text = "  " + name;
  if (text.size() + 2 > kColumn) text += "\n";
  std::size_t column = text.back() == '\n' ? 0 : text.size();
  for (std::size_t at = 0; at < description.size();) {
    const std::size_t end = std::min(description.find(' ', at), description.size());
    const std::string_view word = std::string_view(description).substr(at, end - at);
    if (column > kColumn && column + 1 + display_width(word) > kWidth) {
      text += "\n";
      column = 0;
    }
    const std::size_t gap = column < kColumn ? kColumn - column : 1;
    text.append(gap, ' ').append(word);
    column += gap + display_width(word);
    at = end + 1;
  }
  return text + "\n";
}

// Unlike CLI11's default: usage with its arguments first, placeholders without types, 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("Positionals", "Arguments"); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string usage = fmt::format("\nUsage: {}", name);
    if (!app->get_subcommands({}).empty()) return usage + " COMMAND [OPTIONS]\n";
    usage += " [OPTIONS]";
    for (const CLI::Option* option : app->get_options()) {
      if (!option->get_positional()) continue;
      const std::string argument = option->get_name(true);
      usage += option->get_required() ? " " + argument : fmt::format(" [{}]", argument);
    }
    return usage + "\n";
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string name = make_option_name(option, is_positional);
    if (!is_positional && option->get_type_size() != 0) name += " " + option->get_type_name();
    const bool is_alias = !is_positional && option->get_positional();
    return two_columns(name, is_alias ? "Same as " + option->get_name(true) : option->get_description());
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return two_columns(command->get_name(), command->get_description());
  }
};

// An argument after an unknown option may be its value, so options are named first.
std::string unexpected_argument(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining(true);
  const auto option = std::ranges::find_if(rest, [](const std::string& argument) { return argument.starts_with('-'); });
  if (option != rest.end()) return fmt::format("unknown option '{}'", escape(*option));
  return rest.empty() ? "too many arguments" : fmt::format("unexpected argument '{}'", escape(rest.front()));
}

// As help calls the option that an error names first: OUT rather than --output, which means the same.
std::string label(const CLI::App& command, const std::string& name) {
  const CLI::Option* const option = command.get_option_no_throw(name);
  return option != nullptr && option->get_positional() ? option->get_name(true) : name;
}

// CLI11's error about an option, in our words.
std::string describe_option(const CLI::ParseError& error, const CLI::App& command) {
  const std::string text = error.what();
  const std::string name = label(command, text.substr(0, text.find_first_of(": ")));
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::RequiredError: return fmt::format("{} is required", name);
    case CLI::ExitCodes::ArgumentMismatch:
      if (text.ends_with("override")) return fmt::format("--{} takes no value", name);
      return text.ends_with("missing") ? fmt::format("{} needs a value", name) : fmt::format("{} is given more than once", name);
    case CLI::ExitCodes::ValidationError: {
      const std::size_t colon = text.find(": ");
      return colon == std::string::npos ? text : fmt::format("{} {}", name, text.substr(colon + 2));
    }
    case CLI::ExitCodes::ExcludesError: {
      const std::size_t excludes = text.find(" excludes ");
      if (excludes == std::string::npos) return text;
      return fmt::format("{} and {} cannot be used together", text.substr(0, excludes), text.substr(text.rfind(' ') + 1));
    }
    default: return escape(text);
  }
}

std::string describe(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first.empty()) return "a command is required";
  if (!first.empty() && app.get_subcommands().empty()) {
    return fmt::format("unknown {} '{}'", first.starts_with('-') ? "option" : "command", escape(first));
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) return unexpected_argument(app);
  return describe_option(error, *app.get_subcommands().front());
}

// A model may have more shards than the soft limit of open files.
void allow_many_files() {
  struct rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Exit run(int argc, char** argv) {
  CLI::App app("Opens, checks, converts and quantizes model weights.", "ballast");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", fmt::format("ballast {}", kVersion), "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  ballast inspect model.safetensors\n"
      "  ballast verify Qwen3-0.6B/ --values\n"
      "  ballast convert Qwen3-0.6B/ out/ --dtype bf16\n"
      "  ballast quantize Qwen3-0.6B/ out/ --format mlx --bits 4\n"
      "  ballast inspect hf://Qwen/Qwen3-0.6B\n\n"
      "'ballast COMMAND --help' describes one command. Exit codes: 0 success, 1 a check\n"
      "failed, 2 wrong usage, 3 bad input, 4 output not written, 130 interrupted.");
  Run chosen;
  add_inspect(app, chosen);
  add_verify(app, chosen);
  add_convert(app, chosen);
  add_quantize(app, chosen);
  add_dequantize(app, chosen);
  add_validate(app, chosen);
  add_calibrate(app, chosen);
  add_evaluate(app, chosen);
  add_diff(app, chosen);
  add_extract(app, chosen);
  add_metadata(app, chosen);
  add_download(app, chosen);
  add_completion(app, chosen);
  for (CLI::App* const command : app.get_subcommands({})) {
    command->group("Commands");
    for (CLI::Option* const option : command->get_options()) {
      if (option->get_items_expected_max() == 0) option->disable_flag_override();
    }
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return kDone;
  } catch (const CLI::ParseError& error) {
    const auto used = app.get_subcommands();
    const std::string command = used.empty() ? "ballast" : "ballast " + used.front()->get_name();
    complain(fmt::format("ballast: {}; see {} --help", describe(error, app, argc, argv), command));
    return kUsage;
  }
  watch_interrupts();
  allow_many_files();
  return chosen();
}

}  // namespace

Exit exit_code(const Error& error) {
  switch (error.code) {
    case Errc::kInvalidArgument: return kUsage;
    case Errc::kCancelled: return kInterrupted;
    case Errc::kWrite: return kBadOutput;
    case Errc::kBelowMinimum: return kFoundFalse;
    case Errc::kIo:
    case Errc::kCorrupt:
    case Errc::kUnsupported:
    case Errc::kNotFound: break;
  }
  return kBadInput;
}

OpenOptions ReadOptions::open() const {
  return {.strictness = reference ? Strictness::kReference : Strictness::kStrict,
          .max_header_bytes = max_header_mb * 1'000'000,
          .component = component,
          .variant = variant,
          .stop = was_interrupted};
}

Result<Model> open_weights(const std::string& path, const ReadOptions& options) {
  auto weights = Weights::open(path, options.open());
  if (!weights) return std::unexpected(std::move(weights.error()));
  return decode(std::move(*weights));
}

Result<Model> open_values(const std::string& path, const ReadOptions& options) {
  auto weights = Weights::open(path, options.open());
  if (weights) return decode(std::move(*weights));
  if (weights.error().code != Errc::kUnsupported) return std::unexpected(std::move(weights.error()));
  auto stored = Model::open(path, options.open());
  if (!stored) return std::unexpected(std::move(weights.error()));
  note(fmt::format("{}; using the stored tensors as they are", weights.error().message));
  return stored;
}

void add_directory_options(CLI::App& command, ReadOptions& options) {
  command.add_option("--component", options.component, "Use one component of a diffusers pipeline, such as unet")
      ->type_name("NAME")
      ->check(CLI::Validator([](const std::string& name) { return name.empty() ? "names no component" : ""; }, ""));
  command.add_option("--variant", options.variant, "Use the weights of a variant, such as fp16: model.fp16.safetensors")
      ->type_name("NAME");
}

void add_read_options(CLI::App& command, ReadOptions& options) {
  add_directory_options(command, options);
  command.add_option("--max-header-mb", options.max_header_mb, "Accept headers of at most MB megabytes (default 100)")
      ->type_name("MB")
      ->check(whole_number(1, 1'000'000));
  command.add_flag("--reference", options.reference, "Accept all files that safetensors accepts, also with duplicate names");
}

void add_path(CLI::App& command, std::string& path, const std::string& name) {
  command.add_option(name, path, kModelHelp)->required()->check(not_empty());
}

CLI::Validator one_of(std::vector<std::string> values) {
  return {[values = std::move(values)](const std::string& value) -> std::string {
            if (std::ranges::find(values, value) != values.end()) return "";
            const std::span<const std::string> most(values.data(), values.size() - 1);
            return fmt::format("is '{}', it must be {} or {}", escape(value), fmt::join(most, ", "), values.back());
          },
          ""};
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return {[=](const std::string& value) -> std::string {
            std::uint64_t number = 0;
            const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
            const bool is_number = stop == value.data() + value.size() && error == std::errc{};
            if (is_number && number >= least && number <= most) return "";
            return fmt::format("is '{}', it must be a number from {} to {}", escape(value), least, most);
          },
          ""};
}

CLI::Validator not_empty() {
  return {[](const std::string& value) -> std::string { return value.empty() ? "is empty" : ""; }, ""};
}

void add_lora(CLI::App& command, std::vector<std::string>& loras) {
  command.add_option("--lora", loras, "Merge a LoRA adapter: a file or directory, and =SCALE to scale it; repeatable")
      ->type_name("ADAPTER")
      ->check(not_empty())
      ->expected(1)
      ->take_all();
}

void add_threads(CLI::App& command, unsigned& threads) {
  command.add_option("--threads", threads, "Use N threads (default: one per core)")->type_name("N")->check(whole_number(1, 1024));
}

namespace {

std::map<const CLI::Option*, std::vector<std::string>>& all_choices() {
  static std::map<const CLI::Option*, std::vector<std::string>> choices;
  return choices;
}

}  // namespace

void set_choices(const CLI::Option* option, std::vector<std::string> values) { all_choices()[option] = std::move(values); }

std::vector<std::string> choices_of(const CLI::Option* option) {
  const auto found = all_choices().find(option);
  return found == all_choices().end() ? std::vector<std::string>() : found->second;
}

void add_json(CLI::App& command, bool& json) { command.add_flag("--json", json, "Print the result as one JSON document"); }

Exit report(const Error& error) {
  // Settings that several commands have.
  static const Spelling common{{"allow_loss", "--allow-loss"},
                               {"component", "--component"},
                               {"force", "--force"},
                               {"max_header_bytes", "--max-header-mb"},
                               {"max_shard_size", "--max-shard-size"},
                               {"memory_limit", "--memory-limit"},
                               {"variant", "--variant"}};
  complain("ballast: " + spelled(error.message, common));
  return exit_code(error);
}

}  // namespace ballast::cli

int main(int argc, char** argv) {
  using ballast::cli::complain;
  using ballast::cli::Exit;
  try {
    const Exit code = ballast::cli::run(argc, argv);
    if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || code == Exit::kBadOutput) return code;
    complain("ballast: cannot write to standard output");
    return Exit::kBadOutput;
  } catch (const std::bad_alloc&) {
    complain("ballast: out of memory");
  } catch (const std::exception& error) {
    complain(std::string("ballast: ") + error.what());
  }
  return Exit::kBadInput;
}
