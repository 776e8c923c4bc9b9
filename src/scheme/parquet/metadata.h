#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>

#include "base/file_names.h"

namespace ballast {

// metadata.json of a directory of Parquet V2 Extended, as far as it is needed to read it.
struct ParquetMetadata {
  struct Part {
    std::string file;
    std::uint64_t bytes = 0;
    std::string sha256;
  };
  std::string modality;
  std::string key;  // OutputPlan::key
  std::vector<Part> parts;
  std::optional<std::uint64_t> tensor_count;
  std::optional<std::vector<double>> time_boundaries;
  Metadata source;  // of the original model
};

inline constexpr std::string_view kParquetFormat = "parquet_v2_extended";

Result<ParquetMetadata> parse_parquet_metadata(std::string_view text);

}  // namespace ballast
