#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <parquet/file_reader.h>

#include "format/parquet/leaves.h"
#include "format/parquet/parquet.h"

namespace ballast::parquet {

// Limits the memory for data that is read from a file.
class Budget {
 public:
  explicit Budget(std::uint64_t bytes) : rest_(bytes) {}

  bool take(std::uint64_t bytes) {
    exceeded_ |= bytes > rest_;
    if (!exceeded_) rest_ -= bytes;
    return !exceeded_;
  }
  bool exceeded() const { return exceeded_; }

 private:
  std::uint64_t rest_;
  bool exceeded_ = false;
};

// These let Arrow's exceptions pass.

// Fills `blocks`, one per row of the group.
Result<void> read_blocks(::parquet::RowGroupReader& group, const Leaves& leaves, Budget& budget, std::span<Block> blocks);

// Fills only time_aware_quant_json.
Result<void> read_time_aware(::parquet::RowGroupReader& group, const Leaves& leaves, Budget& budget, std::span<Block> blocks);

// The values of the rows of `blocks`, starting with row `first` of the group.
Result<std::vector<Reader::Values>> read_values(::parquet::RowGroupReader& group, const Leaves& leaves, std::uint64_t first,
                                                std::span<const Block> blocks, Budget& budget);

}  // namespace ballast::parquet
