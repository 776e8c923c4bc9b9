#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>

#include "format/parquet/leaves.h"

namespace ballast::parquet {

// Iterates over the levels of one column of a row group. A level is a value, a null or an empty list. Lets Arrow's exceptions
// pass.
template <class Type>
class Cursor {
 public:
  using Value = typename Type::c_type;

  Cursor(::parquet::RowGroupReader& group, const Leaf& leaf)
      : column_(group.Column(leaf.index)),
        reader_(dynamic_cast<::parquet::TypedColumnReader<Type>&>(*column_)),
        leaf_(leaf),
        unread_(group.metadata()->ColumnChunk(leaf.index)->num_values()) {}

  // Skips up to `levels` levels and returns the number skipped.
  std::int64_t skip(std::int64_t levels) {
    std::int64_t skipped = 0;
    while (skipped < levels) {
      const std::int64_t count = advance([&] { return reader_.Skip(levels - skipped); });
      if (count == 0) break;
      skipped += count;
    }
    return skipped;
  }

  // Returns false at the end. Invalidates references from value().
  bool next() {
    if (has_value()) ++value_;
    ++level_;
    if (level_ < levels_) return check();
    levels_ =
        advance([&] { return reader_.ReadBatch(kBatch, definitions_.data(), repetitions_.data(), buffer_.data(), &values_); });
    level_ = 0;
    value_ = 0;
    return levels_ > 0 && check();
  }

  bool begins_row() const { return repetitions_[static_cast<std::size_t>(level_)] == 0; }
  bool is_null() const { return definition() < leaf_.present; }
  bool has_value() const { return level_ >= 0 && level_ < levels_ && definition() == leaf_.full; }
  // A null item of a list, as opposed to an empty list.
  bool is_null_item() const { return definition() > leaf_.present && definition() < leaf_.full; }
  const Value& value() const { return buffer_[static_cast<std::size_t>(value_)]; }

 private:
  static constexpr std::int64_t kBatch = 256;

  // Arrow writes pages without values if pages are small, but its reader treats them as the end of the column.
  template <class Read>
  std::int64_t advance(const Read& read) {
    constexpr int kMostEmptyPages = 100;
    std::int64_t count = 0;
    for (int empty = 0; count == 0 && unread_ > 0 && empty <= kMostEmptyPages; ++empty) count = read();
    unread_ -= count;
    return count;
  }

  std::int16_t definition() const { return definitions_[static_cast<std::size_t>(level_)]; }
  bool check() const {
    if (has_value() && value_ >= values_) throw ::parquet::ParquetException("a page has fewer values than its header declares");
    return true;
  }

  std::shared_ptr<::parquet::ColumnReader> column_;
  ::parquet::TypedColumnReader<Type>& reader_;
  Leaf leaf_;
  std::int64_t unread_;                             // levels, from the footer
  std::array<std::int16_t, kBatch> definitions_{};  // zero if the column has no such levels
  std::array<std::int16_t, kBatch> repetitions_{};
  std::array<Value, kBatch> buffer_{};
  std::int64_t levels_ = 0;
  std::int64_t values_ = 0;
  std::int64_t level_ = -1;
  std::int64_t value_ = 0;
};

}  // namespace ballast::parquet
