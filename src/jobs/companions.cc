#include "jobs/companions.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "model/identity.h"
#include "scheme/mlx/section.h"
#include "scheme/mlx/side_files.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

// The name of a dtype in PyTorch and in configs; empty if there is none.
std::string_view torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kF32: return "float32";
    case DType::kF16: return "float16";
    case DType::kBF16: return "bfloat16";
    case DType::kF8E4M3: return "float8_e4m3fn";
    case DType::kF8E5M2: return "float8_e5m2";
    case DType::kF8E4M3Fnuz: return "float8_e4m3fnuz";
    case DType::kF8E5M2Fnuz: return "float8_e5m2fnuz";
    case DType::kF8E8M0: return "float8_e8m0fnu";
    case DType::kF4: return "float4_e2m1fn_x2";
    default: return {};
  }
}

// The folders that modules.json lists, which sentence-transformers loads after the model itself: 1_Pooling, 2_Dense.
Result<std::set<std::string, std::less<>>> list_modules(const Folder& folder) {
  std::set<std::string, std::less<>> folders;
  const auto text = TRY(folder.read_text(kModulesFile));
  if (!text) return folders;
  simdjson::dom::parser parser;
  const auto document = parse_json(parser, *text);
  if (!document) return fail_at(shown(join_path(folder.path(), kModulesFile)), document.error());
  simdjson::dom::array modules;
  if (document->get(modules) != simdjson::SUCCESS) return folders;  // another program's file
  for (const simdjson::dom::element& module : modules) {
    std::string_view path;
    if (module["path"].get(path) == simdjson::SUCCESS && !path.empty()) folders.emplace(path);
  }
  return folders;
}

enum class Use : std::uint8_t { kCopy, kLeave, kIgnore };

// Decides about each file of a model directory.
class Sorter {
 public:
  Sorter(std::span<const ListedFile> files, std::span<const std::string> weights,
         const std::set<std::string, std::less<>>& modules)
      : files_(files), modules_(modules), is_parquet_(std::ranges::any_of(files, is_parquet_part, &ListedFile::name)) {
    for (const std::string& path : weights) own_.insert(file_name(path));
    own_.insert(stem_of_files(weights) + std::string(kIndexSuffix));
    own_.emplace(kIndexFile);
    add_indexes_of_variants(weights);
    if (is_parquet_) own_.emplace(kParquetMetadataFile);
  }

  Use use_of(const ListedFile& file) const {
    if (file.name.starts_with('.') || own_.contains(file.name)) return Use::kIgnore;
    if (is_parquet_ && is_parquet_part(file.name)) return Use::kIgnore;
    if (!file.is_regular || file.name.ends_with(kUnfinishedSuffix)) return Use::kLeave;
    if (!is_weights_name(file.name) || is_side_file(file.name)) return Use::kCopy;
    return belongs_to_module(file.name) ? Use::kCopy : Use::kLeave;
  }

 private:
  // Whether the weights are those of a listed module: SafeTensors, or whatever it has instead.
  bool belongs_to_module(const std::string& name) const {
    const std::string folder = name.substr(0, std::min(name.rfind('/'), name.size()));
    if (folder.size() == name.size() || !modules_.contains(folder)) return false;
    return name.ends_with(kSafetensorsSuffix) || name.ends_with(kIndexSuffix) ||
           std::ranges::none_of(files_, [&](const ListedFile& other) {
             return other.name.starts_with(folder + "/") && other.name.ends_with(kSafetensorsSuffix);
           });
  }

  // model.safetensors.index.fp16.json of model.fp16-00001-of-00002.safetensors.
  void add_indexes_of_variants(std::span<const std::string> weights) {
    for (const std::string& path : weights) {
      const std::string name = file_name(path);
      const auto shard = parse_variant_name(name);
      if (!shard || shard->variant.empty()) continue;
      for (const ListedFile& file : files_) {
        const auto index = parse_variant_name(file.name);
        const bool is_own =
            index && index->kind == VariantName::Kind::kIndex && index->stem == shard->stem && index->variant == shard->variant;
        if (is_own) own_.insert(file.name);
      }
      return;  // all are of one variant
    }
  }

  static constexpr std::string_view kUnfinishedSuffix = ".incomplete";  // of a download
  std::span<const ListedFile> files_;
  const std::set<std::string, std::less<>>& modules_;
  bool is_parquet_;
  std::set<std::string, std::less<>> own_;
};

}  // namespace

std::string_view main_dtype(std::span<const TensorSpec> tensors) {
  std::map<DType, std::uint64_t> bytes;
  for (const TensorSpec& tensor : tensors) {
    if (!torch_name(tensor.dtype).empty()) bytes[tensor.dtype] += safetensors::data_bytes(tensor).value_or(0);
  }
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? std::string_view() : torch_name(most->first);
}

std::string with_dtype(std::string_view config, std::string_view dtype) {
  std::string changed;
  std::size_t copied = 0;
  JsonWalk walk(config);
  for (JsonWalk::Token token{}; walk.next(token);) {
    if (token.kind != JsonWalk::Kind::kString || (walk.key() != "torch_dtype" && walk.key() != "dtype")) continue;
    const bool about_weights = std::ranges::all_of(walk.sections(), [](std::string_view section) {
      return section.ends_with("_config") && section != "quantization_config";
    });
    if (!about_weights) continue;
    changed += config.substr(copied, token.begin + 1 - copied);
    changed += dtype;
    copied = token.end - 1;
  }
  return changed += config.substr(copied);
}

Result<Companions> find_companions(const Folder& folder, std::span<const std::string> weights, std::string_view dtype) {
  const auto files = TRY(folder.tree());
  const auto modules = TRY(list_modules(folder));
  const Sorter sorter(files, weights, modules);
  Companions found;
  for (const ListedFile& file : files) {
    switch (sorter.use_of(file)) {
      case Use::kCopy: found.files.push_back({.name = file.name, .path = join_path(folder.path(), file.name)}); break;
      case Use::kLeave: found.not_copied.push_back(file.name); break;
      case Use::kIgnore: break;
    }
  }

  const auto config = std::ranges::find(found.files, kConfigFile, &Companion::name);
  if (config == found.files.end() || dtype.empty()) return found;
  const auto text = read_text(config->path);
  if (!text) return fail_at(shown(config->path), text.error());
  *config = {.name = std::string(kConfigFile), .path = {}, .text = with_dtype(*text, dtype)};
  return found;
}

std::string describe_dropped(std::span<const std::string> names) {
  if (names.empty()) return {};
  return fmt::format("{} left out, which only quantized weights use: {}{}",
                     names.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", names.size()), quote(names.front()),
                     names.size() == 1 ? "" : " and so on");
}

void leave_out(Companions& companions, std::string_view name) {
  if (std::erase_if(companions.files, [&](const Companion& file) { return file.name == name; }) == 0) return;
  companions.not_copied.emplace_back(name);
  std::ranges::sort(companions.not_copied);
}

void leave_out_quantization(Companions& companions) {
  std::erase_if(companions.files, [](const Companion& file) { return is_side_file(file.name); });
  leave_out_claims(companions);
}

void leave_out_claims(Companions& companions) {
  for (const KnownFile& known : kKnownFiles) {
    if (known.role == FileRole::kQuantization) leave_out(companions, known.name);
  }
}

Result<void> drop_quantization(Companions& companions) {
  leave_out_quantization(companions);
  for (Companion& config : companions.files) {
    if (config.name != kConfigFile && config.name != kMistralParamsFile) continue;
    const auto text = config.path.empty() ? Result<std::string>(config.text) : read_text(config.path);
    if (!text) return fail_at(shown(config.path), text.error());
    config = {.name = config.name, .path = {}, .text = with_quantization(*text, {})};
  }
  return {};
}

std::vector<std::string> names_of(const Companions& companions, std::string_view stem) {
  std::vector<std::string> names{fmt::format("{}{}", stem, kSafetensorsSuffix), fmt::format("{}{}", stem, kIndexSuffix)};
  for (const Companion& file : companions.files) names.push_back(file.name);
  return names;
}

std::string describe_not_copied(std::span<const std::string> not_copied) {
  constexpr std::size_t kFew = 3;
  std::string list;
  for (const std::string& name : not_copied.first(std::min(not_copied.size(), kFew))) {
    list += (list.empty() ? "not copied: " : ", ") + escape(name);
  }
  if (not_copied.size() > kFew) list += fmt::format(" and {} more", not_copied.size() - kFew);
  return list;
}

}  // namespace ballast
