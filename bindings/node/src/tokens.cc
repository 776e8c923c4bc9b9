#include "tokens.h"

#include <cstring>
#include <span>

#include "values.h"

namespace ballast::node {

Result<TokenWindows> GivenTokens::windows() const {
  return path.empty() ? make_windows(ids, shape, length, name) : read_tokens(path, length);
}

std::optional<GivenTokens> given_tokens_of(const Napi::Value& value) {
  if (value.IsUndefined()) return std::nullopt;
  const auto given = value.As<Napi::Object>();
  GivenTokens tokens{.length = number(given, "length")};
  if (given.Has("path")) {
    tokens.path = text_of(given.Get("path"));
    return tokens;
  }
  tokens.name = text_of(given.Get("name"));
  const std::span<const std::byte> bytes = bytes_of(given.Get("ids"));
  tokens.ids.resize(bytes.size() / sizeof(std::uint32_t));
  if (!bytes.empty()) std::memcpy(tokens.ids.data(), bytes.data(), bytes.size());
  const auto shape = given.Get("shape").As<Napi::Array>();
  for (std::uint32_t i = 0; i < shape.Length(); ++i) {
    tokens.shape.push_back(static_cast<std::uint64_t>(shape.Get(i).As<Napi::Number>().Int64Value()));
  }
  return tokens;
}

}  // namespace ballast::node
