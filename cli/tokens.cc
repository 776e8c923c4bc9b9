#include "tokens.h"

#include <utility>

#include <fmt/format.h>

#include <ballast/weights.h>

#include "format.h"
#include "terminal.h"

namespace ballast::cli {

void add_tokens(CLI::App& command, TokenOptions& options) {
  command.add_option("--tokens", options.tokens, "Token ids: .npy, .safetensors, or numbers in a text file; rows are windows")
      ->type_name("FILE")
      ->check(not_empty());
  command.add_option("--text", options.text, "Text to tokenize, with the ballast command of the Python package")
      ->type_name("FILE")
      ->check(not_empty())
      ->excludes("--tokens");
  command.add_option("--length", options.length, "Tokens in a window (default 512)")
      ->type_name("N")
      ->check(whole_number(2, 1 << 20));
}

void check_tokens_given(const TokenOptions& options) {
  if (options.tokens.empty() && options.text.empty()) throw CLI::RequiredError("--tokens");
}

Result<TokenWindows> open_tokens(const TokenOptions& options, std::string_view prefix) {
  if (!options.text.empty()) {
    return std::unexpected(Error{
        .code = Errc::kInvalidArgument,
        .message = fmt::format("{0}text needs the tokenizer of the Python package: pip install 'ballast[text]'; or give token "
                               "ids with {0}tokens",
                               prefix)});
  }
  auto tokens = read_tokens(options.tokens, options.length);
  if (tokens && tokens->unused > 0) {
    note(fmt::format("the last {} fill no window of {} and are not used", counted(tokens->unused, "token"), tokens->length));
  }
  return tokens;
}

Result<Model> open_decoded(const std::string& path, const ReadOptions& options) {
  auto weights = Weights::open(path, options.open());
  if (!weights) return std::unexpected(std::move(weights.error()));
  auto model = decode(std::move(*weights), DType::kF32);
  if (!model) return model;
  for (const std::string& warning : model->warnings()) warn(warning);
  return model;
}

}  // namespace ballast::cli
