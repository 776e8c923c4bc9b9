#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast::cli {

// What every command's exit code means; scripts rely on these.
enum Exit : int {
  kDone = 0,
  kFoundFalse = 1,  // checked, and found false
  kUsage = 2,       // wrong usage, invalid config
  kBadInput = 3,    // input missing, unreadable, corrupt or unsupported
  kBadOutput = 4,   // output could not be written
  kInterrupted = 130,
};

Exit exit_code(const Error& error);

// Prints "ballast: message" to standard error and returns the code that goes with it.
Exit report(const Error& error);

// What --reference and --max-header-mb ask for.
OpenOptions open_options(bool reference, std::uint64_t max_header_mb);

// A command adds its options to `app` and leaves in `run` what to do when it is chosen.
using Run = std::function<Exit()>;
void add_inspect(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);

}  // namespace ballast::cli
