#include "scheme/reader.h"

#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/file_names.h"
#include "base/text.h"
#include "source/uri.h"

namespace ballast {

std::string FileSum::difference() const {
  return fmt::format("{}: SHA-256 is {}, {} says {}", shown(path), found, kParquetMetadataFile, quote(expected));
}

std::string storage_name(const Storage& storage) {
  if (storage.bits == 0) return "unquantized";
  if (storage.scheme == "mlx" || storage.scheme == "parquet") return fmt::format("int{} of {}", storage.bits, storage.group_size);
  return fmt::format("{}{}{} {}-bit of {}", storage.scheme, storage.mode.empty() ? "" : " ", storage.mode, storage.bits,
                     storage.group_size);
}

std::uint64_t Weight::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

Metadata about_model(Metadata metadata) {
  for (const char* const key : {"format", "_quantization_metadata", "ballast_fp4_nibble_order"}) metadata.erase(key);
  return metadata;
}

const Weight* WeightsReader::find(std::string_view name) const {
  static_cast<void>(weights());
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : found->second;
}

std::uint64_t WeightsReader::file_size() const {
  std::uint64_t bytes = 0;
  for (const ModelFile& file : files()) bytes += file.size;
  return bytes;
}

Result<std::vector<FileSum>> WeightsReader::hash_files(const WorkOptions&) const { return {}; }

void WeightsReader::add(Weight weight, const RowFormat& format) const {
  weights_.push_back(std::move(weight));
  formats_.push_back(format);
}

void WeightsReader::index_weights() const {
  for (const Weight& weight : weights_) index_.emplace(weight.name, &weight);
}

}  // namespace ballast
