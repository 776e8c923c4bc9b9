#include "base/file_names.h"

#include <algorithm>
#include <charconv>
#include <span>

namespace ballast {
namespace {

bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::optional<std::uint32_t> parse_number(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// The stems of weight files that are published in variants. No stem is the beginning of another.
constexpr std::array<std::string_view, 2> kStems{"model", "diffusion_pytorch_model"};

// ".fp16" is the variant fp16, "" is none. Nothing for any other text.
std::optional<std::string_view> parse_variant(std::string_view text) {
  if (text.empty()) return text;
  const std::string_view variant = text.substr(1);
  const bool is_variant = text.front() == '.' && !variant.empty() && variant.find_first_of(".-/") == std::string_view::npos;
  return is_variant ? std::optional(variant) : std::nullopt;
}

// The middle of model.safetensors.index.fp16.json, or of model.safetensors.fp16.index.json as some versions of diffusers write.
std::optional<std::string_view> parse_index_variant(std::string_view middle) {
  constexpr std::string_view kIndex = ".index";
  if (middle.starts_with(kIndex)) return parse_variant(middle.substr(kIndex.size()));
  if (middle.ends_with(kIndex)) return parse_variant(middle.substr(0, middle.size() - kIndex.size()));
  return std::nullopt;
}

// The end of a name behind its stem.
std::optional<VariantName> parse_behind_stem(std::string_view stem, std::string_view rest) {
  constexpr std::string_view kJson = ".json";
  using Kind = VariantName::Kind;
  if (rest.starts_with(kSafetensorsSuffix) && rest.ends_with(kJson) && rest.size() >= kSafetensorsSuffix.size() + kJson.size()) {
    rest.remove_prefix(kSafetensorsSuffix.size());
    rest.remove_suffix(kJson.size());
    const auto variant = parse_index_variant(rest);
    return variant ? std::optional(VariantName{.stem = stem, .variant = *variant, .kind = Kind::kIndex}) : std::nullopt;
  }
  if (!rest.ends_with(kSafetensorsSuffix)) return std::nullopt;
  rest.remove_suffix(kSafetensorsSuffix.size());
  const std::size_t dash = rest.find('-');
  if (dash == std::string_view::npos) {
    const auto variant = parse_variant(rest);
    return variant ? std::optional(VariantName{.stem = stem, .variant = *variant, .kind = Kind::kSingle}) : std::nullopt;
  }
  const std::string_view numbers = rest.substr(dash);
  const auto before = parse_variant(rest.substr(0, dash));
  const std::size_t dot = numbers.find('.');
  const auto after = parse_variant(dot == std::string_view::npos ? std::string_view() : numbers.substr(dot));
  if (!before || !after || (!before->empty() && !after->empty())) return std::nullopt;
  return VariantName{.stem = stem, .variant = before->empty() ? *after : *before, .kind = Kind::kShard};
}

}  // namespace

std::optional<FileRole> file_role(std::string_view name) {
  const auto found = std::ranges::find(kKnownFiles, name, &KnownFile::name);
  return found == kKnownFiles.end() ? std::nullopt : std::optional(found->role);
}

bool is_weights_name(std::string_view name) {
  constexpr std::array<std::string_view, 22> kEndings{kParquetSuffix, kSafetensorsSuffix,
                                                      kIndexSuffix,   kMlxJsonSuffix,
                                                      ".bin",         ".bin.index.json",
                                                      ".pt",          ".pth",
                                                      ".ckpt",        ".jit",
                                                      ".gguf",        ".ggml",
                                                      ".h5",          ".npz",
                                                      ".onnx",        ".onnx_data",
                                                      ".onnx.data",   ".tflite",
                                                      ".msgpack",     ".ot",
                                                      ".pdparams",    ".nemo"};
  return ends_with_any(name, kEndings) || parse_variant_name(name).has_value();
}

bool is_single_file(std::string_view path) { return path.ends_with(kSafetensorsSuffix) || path.ends_with(kMlxJsonSuffix); }

bool has_file_suffix(std::string_view name) {
  constexpr std::array<std::string_view, 10> kEndings{
      kSafetensorsSuffix, kMlxJsonSuffix, kParquetSuffix, ".json", ".yaml", ".yml", ".txt", ".model", ".npy", ".bin"};
  return ends_with_any(name, kEndings);
}

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  if (!name.ends_with(kSafetensorsSuffix)) return std::nullopt;
  name.remove_suffix(kSafetensorsSuffix.size());
  const std::size_t of = name.rfind(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const std::size_t dash = name.substr(0, of).rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto number = parse_number(name.substr(dash + 1, of - dash - 1));
  const std::string_view last = name.substr(of + kOf.size());
  const auto count = parse_number(last.substr(0, last.find('.')));
  if (!number || !count || *count == 0 || *number > *count) return std::nullopt;
  return ShardName{
      .before = name.substr(0, dash + 1), .number = *number, .digits = of - dash - 1, .after = name.substr(of), .count = *count};
}

std::optional<std::uint32_t> parse_consolidated_name(std::string_view name) {
  if (!name.starts_with(kConsolidatedStem) || !name.ends_with(kSafetensorsSuffix)) return std::nullopt;
  name.remove_prefix(kConsolidatedStem.size());
  if (name == kSafetensorsSuffix || name.front() != '.') return std::nullopt;
  return parse_number(name.substr(1, name.size() - 1 - kSafetensorsSuffix.size()));
}

std::string_view stem_of(std::string_view name) {
  if (const auto variant = parse_variant_name(name)) return variant->stem;
  std::string_view stem;
  if (const auto shard = parse_shard_name(name)) {
    stem = shard->before.substr(0, shard->before.size() - 1);
  } else if (name.ends_with(kIndexSuffix)) {
    stem = name.substr(0, name.size() - kIndexSuffix.size());
  } else if (name.ends_with(kSafetensorsSuffix)) {
    stem = parse_consolidated_name(name) ? kConsolidatedStem : name.substr(0, name.size() - kSafetensorsSuffix.size());
  }
  return stem.empty() ? kModelStem : stem;
}

std::optional<VariantName> parse_variant_name(std::string_view name) {
  for (const std::string_view stem : kStems) {
    if (!name.starts_with(stem)) continue;
    const auto found = parse_behind_stem(stem, name.substr(stem.size()));
    if (found && (found->kind != VariantName::Kind::kShard || parse_shard_name(name))) return found;
  }
  return std::nullopt;
}

bool is_parquet_part(std::string_view name) { return name.starts_with("model-") && name.ends_with(kParquetSuffix); }

bool is_model_name(std::string_view name) {
  const auto role = file_role(name);
  const bool is_single = name.ends_with(kSafetensorsSuffix) && std::ranges::find(kUsualStems, stem_of(name)) != kUsualStems.end();
  return is_single || role == FileRole::kWeights || role == FileRole::kSideWeights || role == FileRole::kQuantization ||
         is_parquet_part(name) || name.ends_with(kIndexSuffix) || parse_shard_name(name).has_value() ||
         parse_variant_name(name).has_value();
}

}  // namespace ballast
