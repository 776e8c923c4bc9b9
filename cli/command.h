#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast::cli {

// Exit codes of all commands; scripts rely on them.
enum Exit : int {
  kDone = 0,
  kFoundFalse = 1,  // a check failed
  kUsage = 2,       // wrong usage, invalid config
  kBadInput = 3,    // input missing, unreadable, corrupt or unsupported
  kBadOutput = 4,   // output could not be written
  kInterrupted = 130,
};

Exit exit_code(const Error& error);

// Prints "ballast: message" to standard error and returns the code that goes with it.
Exit report(const Error& error);

// How a command opens what it reads.
struct ReadOptions {
  bool reference = false;
  std::uint64_t max_header_mb = 100;
  std::string component;
  std::string variant;

  OpenOptions open() const;
};
void add_read_options(CLI::App& command, ReadOptions& options);
// Adds --component and --variant, which add_read_options() adds as well.
void add_directory_options(CLI::App& command, ReadOptions& options);

// Adds --lora; parse_lora() reads its values.
void add_lora(CLI::App& command, std::vector<std::string>& loras);

// Opens a model whose quantized weights are decoded on reading.
Result<Model> open_weights(const std::string& path, const ReadOptions& options);
// The same; if no scheme can decode them, opens the stored tensors and prints a note.
Result<Model> open_values(const std::string& path, const ReadOptions& options);

// Help texts that several commands share.
inline constexpr const char* kModelHelp = "Model: a weights file, a directory, an index, or a URI (https, s3, hf)";
inline constexpr const char* kQuantizedHelp = "Quantized model: a weights file, a directory, an index, or a URI";
inline constexpr const char* kOutHelp = "Output: a file if it ends in .safetensors or .mlx, otherwise a directory";
inline constexpr const char* kForceHelp = "Write into a directory that has other files; they stay";
inline constexpr const char* kNoSyncHelp = "Do not flush the output to disk at the end";
inline constexpr const char* kResumeHelp = "Keep finished work in OUT.incomplete if interrupted, and resume from it";

// Checks of values. Their messages follow the name of the option: "--threads is 0, it must be from 1 to 1024".
CLI::Validator one_of(std::vector<std::string> values);
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
CLI::Validator not_empty();

void add_path(CLI::App& command, std::string& path, const std::string& name = "PATH");
void add_threads(CLI::App& command, unsigned& threads);
void add_json(CLI::App& command, bool& json);

// The values that completion offers for an option.
void set_choices(const CLI::Option* option, std::vector<std::string> values);
std::vector<std::string> choices_of(const CLI::Option* option);

// Each adds its command to `app`, which sets `run` when the command is chosen.
using Run = std::function<Exit()>;
void add_inspect(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_evaluate(CLI::App& app, Run& run);
void add_diff(CLI::App& app, Run& run);
void add_extract(CLI::App& app, Run& run);
void add_metadata(CLI::App& app, Run& run);
void add_quantize(CLI::App& app, Run& run);
void add_dequantize(CLI::App& app, Run& run);
void add_validate(CLI::App& app, Run& run);
void add_download(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);

}  // namespace ballast::cli
