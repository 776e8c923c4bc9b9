#include "format/parquet/row_group.h"

#include <bit>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "format/parquet/cursor.h"

namespace ballast::parquet {
namespace {

std::unexpected<Error> fail_end(std::uint64_t found, std::uint64_t expected) {
  return fail(Errc::kCorrupt, "ends after {} of {} rows", found, expected);
}

std::unexpected<Error> fail_null(std::uint64_t row) { return fail(Errc::kCorrupt, "row {} is null", row); }

std::unexpected<Error> fail_budget() { return fail(Errc::kUnsupported, "exceeds the memory limit"); }

// assign() converts a stored value to a field of Block.

Result<void> assign(const ::parquet::ByteArray& value, Budget& budget, std::string& out) {
  const std::string_view text(reinterpret_cast<const char*>(value.ptr), value.len);
  if (!is_utf8(text)) return fail(Errc::kCorrupt, "invalid UTF-8");
  if (!budget.take(text.size())) return fail_budget();
  out = text;
  return {};
}

Result<void> assign(std::int32_t value, Budget&, std::uint32_t& out) {
  out = std::bit_cast<std::uint32_t>(value);
  return {};
}

Result<void> assign(std::int32_t value, Budget&, std::uint8_t& out) {
  if (!std::in_range<std::uint8_t>(value)) return fail(Errc::kCorrupt, "{} is not a uint8", value);
  out = static_cast<std::uint8_t>(value);
  return {};
}

Result<void> assign(std::int64_t value, Budget&, std::uint64_t& out) {
  out = std::bit_cast<std::uint64_t>(value);
  return {};
}

Result<void> assign(bool value, Budget&, bool& out) {
  out = value;
  return {};
}

template <class Value, class T>
Result<void> assign(const Value& value, Budget& budget, std::optional<T>& out) {
  return assign(value, budget, out.emplace());
}

template <class Member>
struct Stored;
template <>
struct Stored<std::string> : std::type_identity<::parquet::ByteArrayType> {};
template <>
struct Stored<bool> : std::type_identity<::parquet::BooleanType> {};
template <>
struct Stored<std::uint8_t> : std::type_identity<::parquet::Int32Type> {};
template <>
struct Stored<std::uint32_t> : std::type_identity<::parquet::Int32Type> {};
template <>
struct Stored<std::uint64_t> : std::type_identity<::parquet::Int64Type> {};
template <class T>
struct Stored<std::optional<T>> : Stored<T> {};

// Calls use(row, value) for every list item of the rows in [first, last).
template <class Type, class Use>
Result<void> for_each_item(Cursor<Type>& cursor, std::uint64_t first, std::uint64_t last, Use&& use) {
  std::uint64_t rows = 0;
  while (cursor.next()) {
    if (cursor.begins_row()) {
      if (rows == last) return {};
      ++rows;
    }
    if (rows == 0) return fail(Errc::kCorrupt, "starts in the middle of a row");
    if (rows <= first) continue;
    if (cursor.is_null()) return fail_null(rows - 1);
    if (cursor.is_null_item()) return fail(Errc::kCorrupt, "row {} has a null item", rows - 1);
    if (!cursor.has_value()) continue;
    TRY(use(rows - 1, cursor.value()));
  }
  if (rows < last) return fail_end(rows, last);
  return {};
}

std::string column_name(ColumnId column) { return fmt::format("column '{}'", kColumns[column].name); }

// Reads columns one by one until one fails.
class BlockReader {
 public:
  BlockReader(::parquet::RowGroupReader& group, const Leaves& leaves, Budget& budget, std::span<Block> blocks)
      : group_(group), leaves_(leaves), budget_(budget), blocks_(blocks) {}

  template <class Member>
  BlockReader& read(ColumnId column, Member Block::* member) {
    if (!done_) return *this;
    done_ = read_member(column, member);
    if (!done_) done_ = fail_at(column_name(column), std::move(done_.error()));
    return *this;
  }

  Result<void> done() const { return done_; }

 private:
  template <class Member>
  Result<void> read_member(ColumnId column, Member Block::* member) {
    Cursor<typename Stored<Member>::type> cursor(group_, leaves_[column]);
    for (std::size_t row = 0; row < blocks_.size(); ++row) {
      if (!cursor.next()) return fail_end(row, blocks_.size());
      if (cursor.is_null()) {
        if (!kColumns[column].nullable) return fail_null(row);
        continue;
      }
      auto assigned = assign(cursor.value(), budget_, blocks_[row].*member);
      if (!assigned) return fail_at(fmt::format("row {}", row), std::move(assigned.error()));
    }
    return {};
  }

  Result<void> read_member(ColumnId column, std::vector<std::uint64_t> Block::* member) {
    Cursor<::parquet::Int64Type> cursor(group_, leaves_[column]);
    return for_each_item(cursor, 0, blocks_.size(), [&](std::uint64_t row, std::int64_t value) -> Result<void> {
      if (!budget_.take(sizeof value)) return fail_budget();
      return assign(value, budget_, (blocks_[row].*member).emplace_back());
    });
  }

  ::parquet::RowGroupReader& group_;
  const Leaves& leaves_;
  Budget& budget_;
  std::span<Block> blocks_;
  Result<void> done_;
};

Result<void> read_data(::parquet::RowGroupReader& group, const Leaf& leaf, std::uint64_t first, std::span<const Block> blocks,
                       Budget& budget, std::span<Reader::Values> out) {
  Cursor<::parquet::ByteArrayType> cursor(group, leaf);
  const auto rows = static_cast<std::int64_t>(first);
  if (const std::int64_t skipped = cursor.skip(rows); skipped < rows) {
    return fail_end(static_cast<std::uint64_t>(skipped), first + blocks.size());
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!cursor.next()) return fail_end(first + i, first + blocks.size());
    if (cursor.is_null()) return fail_null(first + i);
    const ::parquet::ByteArray& value = cursor.value();
    // The widest dtype has 8 bytes.
    if (value.len / 8 > blocks[i].num_params) {
      return fail(Errc::kCorrupt, "row {} has {} bytes for {} parameters", first + i, value.len, blocks[i].num_params);
    }
    if (!budget.take(value.len)) return fail_budget();
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.ptr);
    out[i].data.assign(bytes, bytes + value.len);
  }
  return {};
}

Result<void> read_floats(::parquet::RowGroupReader& group, const Leaf& leaf, std::uint64_t first, std::span<const Block> blocks,
                         Budget& budget, std::span<Reader::Values> out, std::vector<float> Reader::Values::* member) {
  Cursor<::parquet::FloatType> cursor(group, leaf);
  return for_each_item(cursor, first, first + blocks.size(), [&](std::uint64_t row, float value) -> Result<void> {
    std::vector<float>& values = out[row - first].*member;
    // A group has at least one parameter. Checked for every value, because encodings can expand a few bytes to many values.
    if (values.size() >= blocks[row - first].num_params) {
      return fail(Errc::kCorrupt, "row {} has more than {} items for as many parameters", row, values.size());
    }
    if (!budget.take(sizeof value)) return fail_budget();
    values.push_back(value);
    return {};
  });
}

}  // namespace

Result<void> read_blocks(::parquet::RowGroupReader& group, const Leaves& leaves, Budget& budget, std::span<Block> blocks) {
  return BlockReader(group, leaves, budget, blocks)
      .read(kLayerName, &Block::layer_name)
      .read(kDtype, &Block::dtype)
      .read(kQuantType, &Block::quant_type)
      .read(kShape, &Block::shape)
      .read(kBlock, &Block::block)
      .read(kBlockCount, &Block::block_count)
      .read(kRowOffset, &Block::row_offset)
      .read(kRowCount, &Block::row_count)
      .read(kNumParams, &Block::num_params)
      .read(kBitWidth, &Block::bit_width)
      .read(kQuantAxis, &Block::quant_axis)
      .read(kGroupSize, &Block::group_size)
      .read(kIsDiffusionModel, &Block::is_diffusion_model)
      .read(kModality, &Block::modality)
      .read(kSpatialQuantJson, &Block::spatial_quant_json)
      .read(kActivationStatsJson, &Block::activation_stats_json)
      .done();
}

Result<void> read_time_aware(::parquet::RowGroupReader& group, const Leaves& leaves, Budget& budget, std::span<Block> blocks) {
  return BlockReader(group, leaves, budget, blocks).read(kTimeAwareQuantJson, &Block::time_aware_quant_json).done();
}

Result<std::vector<Reader::Values>> read_values(::parquet::RowGroupReader& group, const Leaves& leaves, std::uint64_t first,
                                                std::span<const Block> blocks, Budget& budget) {
  using Values = Reader::Values;
  std::vector<Values> rows(blocks.size());
  auto done = read_data(group, leaves[kData], first, blocks, budget, rows);
  if (!done) return fail_at(column_name(kData), std::move(done.error()));
  for (const auto& [column, member] : {std::pair(kScales, &Values::scales), std::pair(kZeroPoints, &Values::zero_points)}) {
    done = read_floats(group, leaves[column], first, blocks, budget, rows, member);
    if (!done) return fail_at(column_name(column), std::move(done.error()));
  }
  return rows;
}

}  // namespace ballast::parquet
