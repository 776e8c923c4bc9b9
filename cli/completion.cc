#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "command.h"
#include "terminal.h"

namespace ballast::cli {
namespace {

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* const option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return flags;
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases;
  std::string values;
  for (const CLI::App* const command : app.get_subcommands({})) {
    names.push_back(command->get_name());
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command->get_name(), fmt::join(flags_of(*command), " "));
    for (const CLI::Option* const option : command->get_options()) {
      const auto choices = choices_of(option);
      for (const std::string& name : choices.empty() ? std::vector<std::string>() : option->get_lnames()) {
        values += fmt::format("    '{} --{}') values=\"{}\" ;;\n", command->get_name(), name, fmt::join(choices, " "));
      }
    }
  }
  return fmt::format(R"(# bash completion for ballast
_ballast() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words= values=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "{} {}" -- "$current")
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  case "${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}" in
{}  esac
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ ${{COMP_WORDS[1]}} == completion ]]; then
    mapfile -t COMPREPLY < <(compgen -W "bash zsh" -- "$current")
  else
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -F _ballast ballast
)",
                     fmt::join(names, " "), fmt::join(flags_of(app), " "), cases, values);
}

// Text inside '[…]' inside single quotes of a zsh option description.
std::string zsh_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_script(const CLI::App& app) {
  std::string commands;
  std::string cases;
  for (const CLI::App* const command : app.get_subcommands({})) {
    commands += fmt::format("    '{}:{}'\n", command->get_name(), zsh_quoted(command->get_description()));
    std::string arguments;
    for (const CLI::Option* const option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        const auto choices = choices_of(option);
        const std::string list = choices.empty() ? "" : fmt::format("({})", fmt::join(choices, " "));
        const std::string value =
            option->get_items_expected_max() == 0 ? "" : fmt::format(":{}:{}", option->get_type_name(), list);
        arguments += fmt::format(" \\\n        '--{}[{}]{}'", name, zsh_quoted(option->get_description()), value);
      }
    }
    const std::string positional = command->get_name() == "completion" ? "'*:shell:(bash zsh)'" : "'*:path:_files'";
    cases += fmt::format("    {})\n      _arguments{} \\\n        {}\n      ;;\n", command->get_name(), arguments, positional);
  }
  return fmt::format(R"(#compdef ballast
_ballast() {{
  local -a commands
  commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  ((CURRENT--))
  case $command in
{}  esac
}}
_ballast "$@"
)",
                     commands, cases);
}

}  // namespace

void add_completion(CLI::App& app, Run& run) {
  auto shell = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("completion", "Print a completion script for bash or zsh");
  command->add_option("SHELL", *shell, "bash or zsh")->required()->check(one_of({"bash", "zsh"}));
  command->footer(
      "Examples:\n"
      "  source <(ballast completion bash)\n"
      "  ballast completion zsh > ~/.zfunc/_ballast");
  command->callback([shell, &app, &run] {
    run = [shell, &app] {
      print("{}", *shell == "bash" ? bash_script(app) : zsh_script(app));
      return kDone;
    };
  });
}

}  // namespace ballast::cli
