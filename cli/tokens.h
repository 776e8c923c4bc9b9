#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <ballast/tokens.h>

#include "command.h"

namespace ballast::cli {

// Where the tokens come from that a model runs over.
struct TokenOptions {
  std::string tokens;
  std::string text;
  std::uint64_t length = kDefaultWindow;
};

void add_tokens(CLI::App& command, TokenOptions& options);
// Call it in the callback of the command: throws if neither option was given.
void check_tokens_given(const TokenOptions& options);
// Prints a note if some tokens are not used.
// `prefix` is that of the option names.
Result<TokenWindows> open_tokens(const TokenOptions& options, std::string_view prefix = "--");

// A model whose quantized weights are decoded to F32. Prints its warnings.
Result<Model> open_decoded(const std::string& path, const ReadOptions& options);

}  // namespace ballast::cli
