#include "model/pipeline.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "model/variants.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::object;

// Ends of the names of classes without weights.
constexpr std::array<std::string_view, 6> kWeightless{"Scheduler",        "Tokenizer",      "TokenizerFast",
                                                      "FeatureExtractor", "ImageProcessor", "Processor"};

// Beginnings of the names of components that denoise. The others, such as text encoders and VAE, are small or lose most from
// quantization.
constexpr std::array<std::string_view, 5> kDenoisers{"transformer", "unet", "prior", "controlnet", "decoder"};

bool is_weightless(std::string_view class_name) {
  return std::ranges::any_of(kWeightless, [&](std::string_view end) { return class_name.ends_with(end); });
}

bool is_denoiser(std::string_view name) {
  constexpr std::string_view kPrior = "prior_";  // of the first stage in pipelines of two stages
  if (name.starts_with(kPrior)) name.remove_prefix(kPrior.size());
  return std::ranges::any_of(kDenoisers, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

bool is_folder_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

// The library and class of an entry; nothing if it is a setting or null.
std::optional<PipelineEntry> parse_entry(std::string_view name, element value) {
  array pair;
  if (value.get(pair) != simdjson::SUCCESS || pair.size() != 2) return std::nullopt;
  std::string_view library;
  std::string_view class_name;
  if (pair.at(0).get(library) != simdjson::SUCCESS || pair.at(1).get(class_name) != simdjson::SUCCESS) return std::nullopt;
  return PipelineEntry{.name = std::string(name), .library = std::string(library), .class_name = std::string(class_name)};
}

Result<std::vector<PipelineEntry>> parse_pipeline(std::string_view text) {
  simdjson::dom::parser parser;
  const element parsed = TRY(parse_json(parser, text));
  object root;
  if (parsed.get(root) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "not a JSON object");
  std::vector<PipelineEntry> entries;
  for (const auto [key, value] : root) {
    if (key.starts_with('_')) continue;
    auto entry = parse_entry(key, value);
    if (!entry) continue;
    if (!is_folder_name(key)) return fail(Errc::kCorrupt, "the component {} is not the name of a subfolder", quote(key));
    if (std::ranges::find(entries, key, &PipelineEntry::name) != entries.end()) {
      return fail(Errc::kCorrupt, "the component {} appears twice", quote(key));
    }
    entries.push_back(std::move(*entry));
  }
  return entries;
}

std::string names_of(const std::vector<PipelineEntry>& entries) {
  std::vector<std::string> names;
  for (const PipelineEntry& entry : entries) names.push_back(escape(entry.name));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::unexpected<Error> fail_missing(const std::string& root, const PipelineEntry& entry, std::string_view what) {
  return fail(Errc::kNotFound, "{}: the component {} of {} {}; download it", shown(join_path(root, entry.name)),
              quote(entry.name), kPipelineFile, what);
}

}  // namespace

std::string_view name(ComponentAction action) {
  switch (action) {
    case ComponentAction::kConverted: return "converted";
    case ComponentAction::kQuantized: return "quantized";
    case ComponentAction::kUnquantized: return "unquantized";
    case ComponentAction::kDequantized: return "dequantized";
    case ComponentAction::kCopied: break;
  }
  return "copied";
}

Result<std::vector<PipelineEntry>> read_pipeline(const Folder& root) {
  const auto text = TRY(root.read_text(kPipelineFile));
  if (!text) return std::vector<PipelineEntry>();
  auto entries = parse_pipeline(*text);
  return entries ? std::move(entries) : fail_at(shown(join_path(root.path(), kPipelineFile)), entries.error());
}

Result<Component> find_component(const std::string& root, const PipelineEntry& entry, const ReadOptions& options) {
  Component component{.name = entry.name,
                      .library = entry.library,
                      .class_name = entry.class_name,
                      .path = join_path(root, entry.name),
                      .is_denoiser = is_denoiser(entry.name),
                      .variants = {}};
  if (!is_uri(root) && !is_folder(component.path)) return fail_missing(root, entry, "is not a directory");
  const auto files = list_folder(component.path, options);
  if (!files && !is_absent(files.error())) return fail_at(shown(component.path), files.error());
  if (is_http(root) && is_weightless(entry.class_name)) return component;  // its files have names that cannot be guessed
  if (!files || files->empty()) return fail_missing(root, entry, "has no files");
  std::set<std::string> names;
  for (const ListedFile& file : *files) names.insert(file.name);
  const bool has_weights = std::ranges::any_of(names, [](const std::string& name) { return is_weights_name(name); });
  component.has_weights = has_weights || (names.contains(std::string(kConfigFile)) && !is_weightless(entry.class_name));
  if (!component.has_weights && !is_weightless(entry.class_name))
    return fail_missing(root, entry, "has no weights and no config.json");
  std::ranges::copy(find_variants(names), std::back_inserter(component.variants));
  return component;
}

Result<std::string> component_folder(const std::string& root, std::string_view component, const ReadOptions& options) {
  const auto entries = TRY(read_pipeline(Folder(root, options)));
  if (entries.empty()) {
    return fail(Errc::kInvalidArgument, "{}: not a pipeline: {} names no components; leave out component {}", shown(root),
                kPipelineFile, quote(component));
  }
  if (std::ranges::find(entries, component, &PipelineEntry::name) == entries.end()) {
    return fail(Errc::kInvalidArgument, "{}: no component {} among {}{}", shown(root), quote(component), names_of(entries),
                did_you_mean(component, entries));
  }
  return join_path(root, component);
}

std::unexpected<Error> fail_pipeline(const std::string& root, const std::vector<PipelineEntry>& entries) {
  const auto first = std::ranges::find_if_not(entries, is_weightless, &PipelineEntry::class_name);
  return fail(Errc::kInvalidArgument, "{}: a pipeline with the components {}; give component {}, or the path of its folder",
              shown(root), names_of(entries), escape((first == entries.end() ? entries.begin() : first)->name));
}

Result<std::vector<Component>> list_components(const std::string& path, const OpenOptions& options) {
  std::vector<Component> components;
  if (!options.component.empty()) return components;
  const ReadOptions read = read_options(options);
  auto root = pin_path(path, read);
  if (!root) return fail_at(shown(path), root.error());
  if (!is_folder(*root)) return components;
  for (const PipelineEntry& entry : TRY(read_pipeline(Folder(*root, read)))) {
    components.push_back(TRY(find_component(*root, entry, read)));
  }
  return components;
}

}  // namespace ballast
