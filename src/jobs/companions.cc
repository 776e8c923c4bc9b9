#include "jobs/companions.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json_walk.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
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

Result<std::vector<Companion>> find_companions(const Folder& folder, std::string_view dtype) {
  const auto files = TRY(folder.files());
  std::vector<Companion> companions;
  const bool is_parquet = std::ranges::any_of(files, is_parquet_part, &ListedFile::name);
  for (const ListedFile& file : files) {
    const bool is_weights =
        (is_weights_name(file.name) && !is_side_file(file.name)) || (is_parquet && file.name == kParquetMetadataFile);
    if (file.name.starts_with('.') || is_weights || !file.is_regular) continue;
    companions.push_back({.name = file.name, .path = join_path(folder.path(), file.name)});
  }

  const auto config = std::ranges::find(companions, kConfigFile, &Companion::name);
  if (config == companions.end() || dtype.empty()) return companions;
  const auto text = read_text(config->path);
  if (!text) return fail_at(shown(config->path), text.error());
  *config = {.name = std::string(kConfigFile), .path = {}, .text = with_dtype(*text, dtype)};
  return companions;
}

std::string describe_dropped(std::span<const std::string> names) {
  if (names.empty()) return {};
  return fmt::format("{} left out, which only quantized weights use: {}{}",
                     names.size() == 1 ? "1 tensor is" : fmt::format("{} tensors are", names.size()), quote(names.front()),
                     names.size() == 1 ? "" : " and so on");
}

void leave_out_quantization(std::vector<Companion>& companions) {
  std::erase_if(companions, [](const Companion& companion) {
    return file_role(companion.name) == FileRole::kQuantization || is_side_file(companion.name);
  });
}

Result<void> drop_quantization(std::vector<Companion>& companions) {
  leave_out_quantization(companions);
  const auto config = std::ranges::find(companions, kConfigFile, &Companion::name);
  if (config == companions.end()) return {};
  const auto text = config->path.empty() ? Result<std::string>(config->text) : read_text(config->path);
  if (!text) return fail_at(shown(config->path), text.error());
  *config = {.name = std::string(kConfigFile), .path = {}, .text = with_quantization(*text, {})};
  return {};
}

}  // namespace ballast
