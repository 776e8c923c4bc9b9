#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ballast::parquet {

enum class Kind : std::uint8_t { kText, kBytes, kBool, kUint8, kUint32, kUint64, kUint64List, kFloatList };

struct Column {
  std::string_view name;
  Kind kind;
  bool nullable = false;
};

// In the order of kColumns, which is the order in the files.
enum ColumnId : std::uint8_t {
  kLayerName,
  kDtype,
  kQuantType,
  kShape,
  kBlock,
  kBlockCount,
  kRowOffset,
  kRowCount,
  kData,
  kNumParams,
  kScales,
  kZeroPoints,
  kBitWidth,
  kQuantAxis,
  kGroupSize,
  kIsDiffusionModel,
  kModality,
  kTimeAwareQuantJson,
  kSpatialQuantJson,
  kActivationStatsJson,
};

inline constexpr std::array<Column, 20> kColumns{{
    {.name = "layer_name", .kind = Kind::kText},
    {.name = "dtype", .kind = Kind::kText},
    {.name = "quant_type", .kind = Kind::kText},
    {.name = "shape", .kind = Kind::kUint64List},
    {.name = "block", .kind = Kind::kUint32},
    {.name = "block_count", .kind = Kind::kUint32},
    {.name = "row_offset", .kind = Kind::kUint64},
    {.name = "row_count", .kind = Kind::kUint64},
    {.name = "data", .kind = Kind::kBytes},
    {.name = "num_params", .kind = Kind::kUint64},
    {.name = "scales", .kind = Kind::kFloatList},
    {.name = "zero_points", .kind = Kind::kFloatList},
    {.name = "bit_width", .kind = Kind::kUint8},
    {.name = "quant_axis", .kind = Kind::kUint64, .nullable = true},
    {.name = "group_size", .kind = Kind::kUint64, .nullable = true},
    {.name = "is_diffusion_model", .kind = Kind::kBool},
    {.name = "modality", .kind = Kind::kText, .nullable = true},
    {.name = "time_aware_quant_json", .kind = Kind::kText, .nullable = true},
    {.name = "spatial_quant_json", .kind = Kind::kText, .nullable = true},
    {.name = "activation_stats_json", .kind = Kind::kText, .nullable = true},
}};

}  // namespace ballast::parquet
