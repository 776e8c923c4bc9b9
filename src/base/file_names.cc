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

}  // namespace

std::optional<FileRole> file_role(std::string_view name) {
  const auto found = std::ranges::find(kKnownFiles, name, &KnownFile::name);
  return found == kKnownFiles.end() ? std::nullopt : std::optional(found->role);
}

bool is_weights_name(std::string_view name) {
  constexpr std::array<std::string_view, 19> kEndings{kParquetSuffix, kSafetensorsSuffix,
                                                      kIndexSuffix,   kMlxJsonSuffix,
                                                      ".bin",         ".bin.index.json",
                                                      ".pt",          ".pth",
                                                      ".ckpt",        ".jit",
                                                      ".gguf",        ".ggml",
                                                      ".h5",          ".npz",
                                                      ".onnx",        ".onnx_data",
                                                      ".onnx.data",   ".tflite",
                                                      ".msgpack"};
  return ends_with_any(name, kEndings);
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
  const auto count = parse_number(name.substr(of + kOf.size()));
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

bool is_parquet_part(std::string_view name) { return name.starts_with("model-") && name.ends_with(kParquetSuffix); }

bool is_model_name(std::string_view name) {
  const auto role = file_role(name);
  const bool is_single = name.ends_with(kSafetensorsSuffix) && std::ranges::find(kUsualStems, stem_of(name)) != kUsualStems.end();
  return is_single || role == FileRole::kWeights || role == FileRole::kSideWeights || role == FileRole::kQuantization ||
         is_parquet_part(name) || name.ends_with(kIndexSuffix) || parse_shard_name(name).has_value();
}

}  // namespace ballast
