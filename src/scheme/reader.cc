#include "scheme/reader.h"

#include <fmt/format.h>

#include <ballast/quantize.h>

#include "base/checked.h"
#include "base/text.h"
#include "scheme/parquet/metadata.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {

std::string FileSum::difference() const {
  return fmt::format("{}: its SHA-256 is {}, {} says {}", shown(path), found, kParquetMetadataFile, quote(expected));
}

Result<std::vector<FileSum>> QuantizedSource::hash_files(const Progress&) const { return {}; }

Result<std::unique_ptr<QuantizedSource>> open_quantized(const std::string& path) {
  return is_parquet_model(path) ? open_parquet_quantized(path) : open_mlx_quantized(path);
}

Result<QuantizedModelInfo> describe_quantized(const std::string& path) {
  const auto source = open_quantized(path);
  if (!source) return std::unexpected(source.error());
  auto boundaries = (*source)->time_boundaries();
  if (!boundaries) return std::unexpected(boundaries.error());
  QuantizedModelInfo info{.format = (*source)->format(),
                          .files = {},
                          .tensors = {},
                          .time_boundaries = std::move(*boundaries),
                          .modality = (*source)->modality(),
                          .config = (*source)->config()};
  for (const std::string& file : (*source)->files()) {
    info.files.push_back({.path = without_secrets(file), .bytes = size_of(file)});
  }
  for (const QuantizedTensor& tensor : (*source)->tensors()) {
    info.tensors.push_back({.name = tensor.name,
                            .dtype = tensor.dtype,
                            .shape = tensor.shape,
                            .bits = tensor.format.bits,
                            .group_size = tensor.is_quantized() ? tensor.format.group_size : 0,
                            .parameters = checked_elements(tensor.shape).value_or(0),
                            .bytes = tensor.bytes,
                            .file = without_secrets(tensor.file),
                            .equalized = !tensor.format.restore.empty()});
  }
  return info;
}

const QuantizedTensor* QuantizedSource::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

void QuantizedSource::index_tensors() {
  for (const QuantizedTensor& tensor : tensors()) index_.emplace(tensor.name, &tensor);
}

}  // namespace ballast
