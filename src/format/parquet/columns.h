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

// In the order of kColumns, which is that of the files.
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
    {"layer_name", Kind::kText},
    {"dtype", Kind::kText},
    {"quant_type", Kind::kText},
    {"shape", Kind::kUint64List},
    {"block", Kind::kUint32},
    {"block_count", Kind::kUint32},
    {"row_offset", Kind::kUint64},
    {"row_count", Kind::kUint64},
    {"data", Kind::kBytes},
    {"num_params", Kind::kUint64},
    {"scales", Kind::kFloatList},
    {"zero_points", Kind::kFloatList},
    {"bit_width", Kind::kUint8},
    {"quant_axis", Kind::kUint64, true},
    {"group_size", Kind::kUint64, true},
    {"is_diffusion_model", Kind::kBool},
    {"modality", Kind::kText, true},
    {"time_aware_quant_json", Kind::kText, true},
    {"spatial_quant_json", Kind::kText, true},
    {"activation_stats_json", Kind::kText, true},
}};

}  // namespace ballast::parquet
