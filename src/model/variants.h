#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// The variants of the weights in a directory, sorted; plain weights are the empty string.
std::set<std::string> find_variants(const std::set<std::string>& names);

// The names of a directory without the weights of other variants.
struct VariantChoice {
  std::set<std::string> names;
  std::vector<std::string> warnings;
};

// Chooses the weights of `variant`, or the plain ones if it is empty. Fails if a directory has weights of other variants only.
Result<VariantChoice> choose_variant(std::set<std::string> names, std::string_view variant);

}  // namespace ballast
