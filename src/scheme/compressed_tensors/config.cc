#include "scheme/compressed_tensors/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::size_t kMostPatterns = 1000;
constexpr std::string_view kMixed = "mixed-precision";

constexpr std::array<std::string_view, 7> kFormats{"pack-quantized",  "int-quantized",        "float-quantized",
                                                   "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                                                   "mxfp8-quantized"};
// Weights that keep their values until they are used.
constexpr std::array<std::string_view, 2> kDenseFormats{"dense", "fakequant"};

bool is_dense(std::string_view format) { return std::ranges::find(kDenseFormats, format) != kDenseFormats.end(); }

// Empty for a format that each group has of its own.
Result<std::string> parse_format(const Section& section) {
  constexpr std::string_view kKey = "format";
  const auto format = TRY(section.text(kKey));
  if (!format || *format == kMixed) return std::string();
  if (is_dense(*format) || std::ranges::find(kFormats, *format) != kFormats.end()) return std::string(*format);
  return fail(Errc::kUnsupported, "{}: format {} is not supported; Ballast reads {}", section.place(), quote(*format),
              fmt::join(kFormats, ", "));
}

Result<CtStrategy> parse_strategy(const Section& section, std::optional<std::int64_t> group_size) {
  constexpr std::string_view kKey = "strategy";
  const auto text = TRY(section.text(kKey));
  if (!text) {
    if (!group_size) return CtStrategy::kTensor;
    return *group_size == -1 ? CtStrategy::kChannel : CtStrategy::kGroup;
  }
  const std::string strategy = lowercase(*text);
  if (strategy == "tensor") return CtStrategy::kTensor;
  if (strategy == "channel") return CtStrategy::kChannel;
  if (strategy == "group" || strategy == "tensor_group") return CtStrategy::kGroup;
  if (strategy == "block") return CtStrategy::kBlock;
  return section.wrong(kKey, "tensor, channel, group, tensor_group or block");
}

// [128, 128], or "128x128" as in older files.
Result<void> parse_block(const Section& section, CtWeights& weights) {
  constexpr std::string_view kKey = "block_structure";
  constexpr std::string_view kExpected = "two positive numbers";
  const auto object = section.object()[kKey];
  std::string_view text;
  std::array<std::int64_t, 2> sizes{};
  if (object.get(text) == simdjson::SUCCESS) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto first = std::from_chars(begin, end, sizes[0]);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != 'x') return section.wrong(kKey, kExpected);
    const auto second = std::from_chars(first.ptr + 1, end, sizes[1]);
    if (second.ec != std::errc() || second.ptr != end) return section.wrong(kKey, kExpected);
  } else {
    const auto numbers = TRY(section.numbers(kKey));
    if (!numbers || numbers->size() != sizes.size()) return section.wrong(kKey, kExpected);
    std::ranges::copy(*numbers, sizes.begin());
  }
  if (sizes[0] < 1 || sizes[1] < 1) return section.wrong(kKey, kExpected);
  weights.block_rows = static_cast<std::uint64_t>(sizes[0]);
  weights.block_columns = static_cast<std::uint64_t>(sizes[1]);
  return {};
}

// Absent keys have the defaults of compressed-tensors.
Result<CtWeights> parse_weights(const Section& section) {
  CtWeights weights;
  const std::int64_t bits = TRY(section.number("num_bits")).value_or(weights.bits);
  if (bits < 1 || bits > 8) return section.wrong("num_bits", "1 to 8");
  weights.bits = static_cast<unsigned>(bits);
  const std::string type = lowercase(TRY(section.text("type")).value_or("int"));
  if (type != "int" && type != "float") return section.wrong("type", "int or float");
  weights.is_float = type == "float";
  weights.is_symmetric = TRY(section.flag("symmetric")).value_or(true);
  const auto group_size = TRY(section.number("group_size"));
  weights.strategy = TRY(parse_strategy(section, group_size));
  if (weights.strategy == CtStrategy::kGroup) {
    if (group_size.value_or(0) < 1) return section.wrong("group_size", "a positive number");
    weights.group_size = static_cast<std::uint64_t>(*group_size);
  }
  if (weights.strategy == CtStrategy::kBlock) TRY(parse_block(section, weights));
  return weights;
}

Result<std::vector<CtGroup>> parse_groups(const Section& section, const std::string& format) {
  std::vector<CtGroup> groups;
  const auto all = TRY(section.section("config_groups"));
  if (!all) return groups;
  for (const auto [key, value] : all->object()) {
    const auto inner = TRY(all->section(key));
    if (!inner) return all->wrong(key, "an object");
    const std::string own = TRY(parse_format(*inner));
    const auto weights = TRY(inner->section("weights"));
    CtGroup group{.place = inner->place(),
                  .format = own.empty() ? format : own,
                  .targets = TRY(CtNames::parse(*inner, "targets")),
                  .weights = std::nullopt};
    if (weights) group.weights = TRY(parse_weights(*weights));
    groups.push_back(std::move(group));
  }
  return groups;
}

// compressed-tensors 0.17 is the first that does not pad words.
std::optional<bool> writes_padded_words(std::string_view version) {
  constexpr unsigned kFirstDense = 17;
  constexpr std::string_view kMajor = "0.";
  if (version.empty()) return std::nullopt;
  if (!version.starts_with(kMajor)) return false;
  unsigned minor = 0;
  const std::string_view rest = version.substr(kMajor.size());
  if (std::from_chars(rest.data(), rest.data() + rest.size(), minor).ec != std::errc()) return std::nullopt;
  return minor < kFirstDense;
}

Result<void> refuse_sparse(const Section& section) {
  const auto sparsity = TRY(section.section("sparsity_config"));
  if (!sparsity) return {};
  const std::string_view format = TRY(sparsity->text("format")).value_or("dense");
  if (format == "dense") return {};
  return fail(Errc::kUnsupported, "{}: format {} of sparse weights is not supported; save the model without it",
              sparsity->place(), quote(format));
}

}  // namespace

Result<CtNames> CtNames::parse(const Section& section, std::string_view key) {
  constexpr std::string_view kPattern = "re:";
  CtNames names;
  for (const std::string_view text : TRY(section.texts(key))) {
    if (!text.starts_with(kPattern)) {
      names.exact_.emplace(text);
      // A class, such as Linear. Names of modules are lowercase.
      names.has_class_ |= !text.empty() && text.front() >= 'A' && text.front() <= 'Z' && !text.contains('.');
      continue;
    }
    if (names.patterns_.size() == kMostPatterns) {
      return fail(Errc::kUnsupported, "{}: {} has more than {} regular expressions", section.place(), key, kMostPatterns);
    }
    auto regex = Regex::compile(fmt::format("^(?:{})", text.substr(kPattern.size())));
    if (regex) {
      names.patterns_.push_back(*std::move(regex));
    } else {
      names.is_complete_ = false;
    }
  }
  return names;
}

bool CtNames::matches(std::string_view module) const {
  return std::ranges::any_of(patterns_, [&](const Regex& pattern) { return pattern.found_in(module); });
}

Result<CtConfig> CtConfig::parse(const Declared& declared) {
  const Section outer = TRY(Section::parse(declared));
  // Old files nest it beside sparsity_config.
  const Section section = TRY(outer.section("quantization_config")).value_or(outer);
  TRY(refuse_sparse(outer));
  TRY(refuse_sparse(section));
  const std::string format = TRY(parse_format(section));
  CtConfig config{.place = section.place(),
                  .groups = TRY(parse_groups(section, format)),
                  .ignored = TRY(CtNames::parse(section, "ignore")),
                  .is_compressed = TRY(section.text("quantization_status")).value_or("initialized") == "compressed",
                  .has_padded = writes_padded_words(TRY(section.text("version")).value_or(""))};
  if (is_dense(format)) config.is_compressed = false;
  return config;
}

std::vector<const CtGroup*> CtConfig::groups_of(std::string_view module) const {
  std::vector<const CtGroup*> found;
  const auto add_if = [&](const auto& applies) {
    if (!found.empty()) return;
    for (const CtGroup& group : groups) {
      if (applies(group.targets)) found.push_back(&group);
    }
  };
  add_if([&](const CtNames& targets) { return targets.has(module); });
  add_if([&](const CtNames& targets) { return targets.matches(module); });
  add_if([](const CtNames& targets) { return targets.has_class() || !targets.is_complete(); });
  // Loaders rename modules, so that targets may have names that no tensor has.
  add_if([](const CtNames&) { return true; });
  return found;
}

}  // namespace ballast
