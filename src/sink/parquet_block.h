#pragma once

#include "format/parquet/parquet.h"
#include "sink/quantized_output.h"

namespace ballast {

// What is written of a block besides its values, and besides what follows from statistics.
parquet::Block describe_block(const QuantizeWork& work, const TensorBlock& block);

// How many bytes Parquet takes, found out by writing to nowhere.
class ParquetSizes {
 public:
  static Result<ParquetSizes> make();

  // All but the values of the model's blocks.
  Result<std::uint64_t> frame(const QuantizeWork& work) const;
  // Scales and zero points, for each group.
  Result<double> parameters(const CodedRows& sample) const;

 private:
  struct Row {
    parquet::Block block;
    std::span<const std::byte> data;
    std::span<const float> scales;
    std::span<const float> zero_points;
  };

  explicit ParquetSizes(const parquet::Library& library) : library_(&library) {}
  Result<std::uint64_t> file(std::span<const Row> rows) const;

  const parquet::Library* library_;
  std::uint64_t lone_ = 0;  // of a block that has a row group of its own
};

}  // namespace ballast
