#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <napi.h>

#include <ballast/error.h>
#include <ballast/tokens.h>

namespace ballast::node {

// Token ids as JavaScript gives them.
struct GivenTokens {
  std::string path;  // of a file with the ids; empty: they are in `ids`
  std::string name;  // for messages
  std::vector<std::uint32_t> ids;
  std::vector<std::uint64_t> shape;
  std::uint64_t length = kDefaultWindow;  // of a window, unless the ids have rows

  Result<TokenWindows> windows() const;  // reads the file
};

// {path, length} or {name, ids, shape, length}; undefined for none.
std::optional<GivenTokens> given_tokens_of(const Napi::Value& value);

}  // namespace ballast::node
