#pragma once

#include "format/parquet/parquet.h"
#include "scheme/writer.h"

namespace ballast {

// The columns of a block's row, except its values and time bias.
parquet::Block describe_block(const OutputPlan& plan, const TensorBlock& block);

// parquet::Block::time_aware_quant_json.
std::string time_aware_json(const OutputPlan& plan, const CodedBlock& block);

// As JSON; null if there are no groups of timesteps.
std::string boundaries_json(const OutputPlan& plan);

// Sizes of Parquet files, measured by writing without storing.
class ParquetSizes {
 public:
  static Result<ParquetSizes> make();

  // All but the values of the model's blocks.
  Result<std::uint64_t> frame(const OutputPlan& plan) const;
  // Scales, zero points and time-aware parameters of the first `rows` rows.
  Result<std::uint64_t> parameters(const OutputPlan& plan, const CodedBlock& block, std::uint64_t rows) const;

 private:
  struct Row {
    parquet::Block block;
    std::span<const std::byte> data;
    std::span<const float> scales;
    std::span<const float> zero_points;
  };

  explicit ParquetSizes(const parquet::Library& library) : library_(&library) {}
  Result<std::uint64_t> file(std::span<const Row> rows) const;
  Result<std::uint64_t> more_than_empty(const Row& row) const;

  const parquet::Library* library_;
  std::uint64_t empty_ = 0;  // a file of one block without anything
  std::uint64_t lone_ = 0;   // of a block that has a row group of its own
};

}  // namespace ballast
