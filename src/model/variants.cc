#include "model/variants.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/similar_name.h"
#include "base/text.h"

namespace ballast {
namespace {

using Kind = VariantName::Kind;

// Weights of any name that the directory can be opened with.
bool is_readable_weights(std::string_view name) {
  return name.ends_with(kSafetensorsSuffix) || name.ends_with(kMlxJsonSuffix) || name.ends_with(kIndexSuffix) ||
         parse_variant_name(name).has_value();
}

std::string list_variants(const std::set<std::string>& variants) {
  std::vector<std::string> shown;
  for (const std::string& variant : variants) {
    if (!variant.empty()) shown.push_back(escape(variant));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::unexpected<Error> fail_no_such_variant(std::string_view variant, const std::set<std::string>& found) {
  const std::string named = list_variants(found);
  if (named.empty()) {
    return fail(Errc::kNotFound, "no weights of the variant {}; there are plain weights only", quote(variant));
  }
  SimilarName similar(variant);
  for (const std::string& each : found) similar.offer(each);
  return fail(Errc::kNotFound, "no weights of the variant {}; variants here: {}{}", quote(variant), named, did_you_mean(similar));
}

// With several stems, such as model and diffusion_pytorch_model, or with shards and a single file, takes one set.
void leave_one_set(VariantChoice& choice) {
  const auto is_kind = [&](std::string_view stem, bool single) {
    return std::ranges::any_of(choice.names, [&](const std::string& name) {
      const auto parsed = parse_variant_name(name);
      return parsed && parsed->stem == stem && (parsed->kind == Kind::kSingle) == single;
    });
  };
  const std::string_view stem = is_kind("model", true) || is_kind("model", false) ? "model" : "diffusion_pytorch_model";
  const bool has_shards = is_kind(stem, false);
  std::erase_if(choice.names, [&](const std::string& name) {
    const auto parsed = parse_variant_name(name);
    if (!parsed) return false;
    const bool is_used = parsed->stem == stem && (!has_shards || parsed->kind != Kind::kSingle);
    if (!is_used) {
      choice.warnings.push_back(
          fmt::format("{} is ignored because {} {} is used", escape(name), stem, has_shards ? "in shards" : "in one file"));
    }
    return !is_used;
  });
}

}  // namespace

std::set<std::string> find_variants(const std::set<std::string>& names) {
  std::set<std::string> found;
  for (const std::string& name : names) {
    if (const auto parsed = parse_variant_name(name)) found.emplace(parsed->variant);
  }
  return found;
}

Result<VariantChoice> choose_variant(std::set<std::string> names, std::string_view variant) {
  const std::set<std::string> found = find_variants(names);
  VariantChoice choice{.names = std::move(names), .warnings = {}};
  const auto is_other = [&](const std::string& name) {
    const auto parsed = parse_variant_name(name);
    return parsed && parsed->variant != variant;
  };
  if (!variant.empty()) {
    if (!found.contains(std::string(variant))) return fail_no_such_variant(variant, found);
    std::erase_if(choice.names, [&](const std::string& name) {
      return is_other(name) || (is_readable_weights(name) && !parse_variant_name(name));
    });
    leave_one_set(choice);
    return choice;
  }
  std::erase_if(choice.names, is_other);
  const std::string others = list_variants(found);
  if (others.empty()) return choice;
  if (std::ranges::none_of(choice.names, is_readable_weights)) {
    return fail(Errc::kInvalidArgument, "only weights of variants: {}; give variant {}", others,
                escape(*std::ranges::find_if(found, [](const std::string& each) { return !each.empty(); })));
  }
  choice.warnings.push_back(
      fmt::format("the {} ignored because the plain weights are used",
                  found.size() - found.count("") == 1 ? "variant " + others + " is" : "variants " + others + " are"));
  return choice;
}

}  // namespace ballast
