#include "scheme/parquet/metadata.h"

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

using simdjson::dom::element;

Result<std::string> text_of(const element& object, std::string_view key) {
  std::string_view value;
  if (object[key].get(value) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "no string '{}'", key);
  return std::string(value);
}

// A name in the same folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<ParquetMetadata::Part> parse_part(const element& object) {
  auto file = text_of(object, "file");
  if (!file) return std::unexpected(file.error());
  if (!is_plain_name(*file)) return fail(Errc::kCorrupt, "part {} is not a plain file name", quote(*file));
  auto sum = TRY(text_of(object, "sha256"));
  std::uint64_t bytes = 0;
  if (object["bytes"].get(bytes) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "part {} has no size in bytes", quote(*file));
  return ParquetMetadata::Part{.file = std::move(*file), .bytes = bytes, .sha256 = std::move(sum)};
}

}  // namespace

Result<ParquetMetadata> parse_parquet_metadata(std::string_view text) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, text));
  const auto format = text_of(root, "format");
  if (!format) return std::unexpected(format.error());
  if (*format != kParquetFormat) return fail(Errc::kUnsupported, "the format is {}, not {}", quote(*format), kParquetFormat);
  std::uint64_t version = 0;
  if (root["version"].get(version) != simdjson::SUCCESS || version != 2) {
    return fail(Errc::kUnsupported, "the version is not 2");
  }
  ParquetMetadata metadata;
  metadata.modality = text_of(root, "modality").value_or("");
  metadata.key = text_of(root, "key").value_or("");
  if (std::uint64_t count = 0; root["tensor_count"].get(count) == simdjson::SUCCESS) metadata.tensor_count = count;
  if (simdjson::dom::array times; root["time_boundaries"].get(times) == simdjson::SUCCESS) {
    metadata.time_boundaries.emplace();
    for (const element& each : times) {
      double time = 0;
      if (each.get(time) != simdjson::SUCCESS)
        return fail(Errc::kCorrupt, "time_boundaries contains something that is not a number");
      metadata.time_boundaries->push_back(time);
    }
  }
  if (simdjson::dom::object source; root["metadata"].get(source) == simdjson::SUCCESS) {
    for (const auto [key, value] : source) {
      std::string_view entry;
      if (value.get(entry) == simdjson::SUCCESS) metadata.source.emplace(key, entry);
    }
  }
  simdjson::dom::array parts;
  if (root["parts"].get(parts) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "no list 'parts'");
  for (const element& each : parts) {
    auto part = TRY(parse_part(each));
    metadata.parts.push_back(std::move(part));
  }
  return metadata;
}

}  // namespace ballast
