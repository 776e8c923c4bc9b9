#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <ranges>
#include <string_view>
#include <utility>

#include <arrow/memory_pool.h>
#include <arrow/util/compression.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/parquet/arrow_error.h"
#include "format/parquet/leaves.h"
#include "format/parquet/library.h"
#include "format/parquet/row_group.h"
#include "format/parquet/source_file.h"

namespace ballast::parquet {
namespace {

// Limit of the footer, and of the blocks without their values.
constexpr std::uint64_t kMostTableBytes = 100'000'000;
// Largest row group whose values are cached. Its other blocks will probably be read next.
constexpr std::int64_t kMostCachedBytes = 32 << 20;
constexpr std::size_t kCachedGroups = 2;
constexpr int kMostRowGroups = 65'536;

::parquet::ReaderProperties make_properties() {
  ::parquet::ReaderProperties properties(arrow::system_memory_pool());
  properties.enable_buffered_stream();  // buffers one page instead of a whole column chunk
  properties.set_page_checksum_verification(true);
  properties.set_thrift_string_size_limit(kMostTableBytes);
  properties.set_thrift_container_size_limit(kMostRowGroups);
  return properties;
}

// A file consists of "PAR1", pages, the footer, its length in 4 bytes, and "PAR1".
Result<void> check_frame(const Source& source) {
  constexpr std::string_view kMagic = "PAR1";
  constexpr std::uint64_t kSmallest = 12;
  if (source.size() < kSmallest) {
    return fail(Errc::kCorrupt, "file of {} bytes is too small for Parquet (at least {} bytes)", source.size(), kSmallest);
  }
  std::array<char, 4> head{};
  std::array<char, 8> tail{};
  TRY(source.read_at(0, std::as_writable_bytes(std::span(head))));
  TRY(source.read_at(source.size() - tail.size(), std::as_writable_bytes(std::span(tail))));
  const std::string_view first(head.data(), head.size());
  const std::string_view last(tail.data() + 4, 4);
  if (last == "PARE") return fail(Errc::kUnsupported, "the file is encrypted");
  if (first != kMagic) return fail(Errc::kCorrupt, "not a Parquet file: it begins with {}, not 'PAR1'", quote(first));
  if (last != kMagic) return fail(Errc::kCorrupt, "file is truncated or not Parquet: it ends with {}, not 'PAR1'", quote(last));

  std::uint32_t footer = 0;
  std::memcpy(&footer, tail.data(), sizeof footer);
  if (footer > source.size() - kSmallest) {
    return fail(Errc::kCorrupt, "footer of {} bytes does not fit into the file ({} bytes)", footer, source.size());
  }
  if (footer > kMostTableBytes) {
    return fail(Errc::kUnsupported, "footer of {} bytes exceeds the limit of {} bytes", footer, kMostTableBytes);
  }
  return {};
}

// The first row of each group, and the total: group g has the rows from [g] to [g + 1].
Result<std::vector<std::uint64_t>> add_up_rows(const ::parquet::FileMetaData& metadata) {
  std::vector<std::uint64_t> starts{0};
  for (int group = 0; group < metadata.num_row_groups(); ++group) {
    const std::int64_t rows = metadata.RowGroup(group)->num_rows();
    const auto end = rows < 0 ? std::nullopt : checked_add(starts.back(), static_cast<std::uint64_t>(rows));
    if (!end) return fail(Errc::kCorrupt, "row group {} has {} rows", group, rows);
    starts.push_back(*end);
  }
  if (!std::cmp_equal(metadata.num_rows(), starts.back())) {
    return fail(Errc::kCorrupt, "the row groups have {} rows, the footer declares {}", starts.back(), metadata.num_rows());
  }
  if (starts.back() > kMostTableBytes / sizeof(Block)) {
    return fail(Errc::kUnsupported, "file has {} rows, at most {} are supported", starts.back(), kMostTableBytes / sizeof(Block));
  }
  return starts;
}

Result<void> check_codecs(const ::parquet::FileMetaData& metadata, const Leaves& leaves) {
  for (int group = 0; group < metadata.num_row_groups(); ++group) {
    const auto row_group = metadata.RowGroup(group);
    for (std::size_t column = 0; column < leaves.size(); ++column) {
      const auto codec = row_group->ColumnChunk(leaves[column].index)->compression();
      if (arrow::util::Codec::IsAvailable(codec)) continue;
      return fail(Errc::kUnsupported,
                  "column '{}' of row group {} is compressed with {}, which this version of Arrow cannot read",
                  kColumns[column].name, group, arrow::util::Codec::GetCodecAsString(codec));
    }
  }
  return {};
}

// Fetches the columns of the blocks' table in one operation if the file is on a server. Wrong offsets in the footer are ignored
// here and reported when the columns are read.
Result<void> prefetch_table(const ::parquet::FileMetaData& metadata, const Leaves& leaves, const Source& source,
                            SourceFile& file) {
  constexpr std::uint64_t kMostPrefetched = 16 << 20;
  if (source.parallel_reads() == 0) return {};
  std::vector<Extent> parts;
  std::uint64_t bytes = 0;
  for (int group = 0; group < metadata.num_row_groups(); ++group) {
    const auto row_group = metadata.RowGroup(group);
    for (std::size_t column = 0; column < leaves.size(); ++column) {
      const bool is_read_later = column == kData || column == kScales || column == kZeroPoints || column == kTimeAwareQuantJson;
      if (is_read_later) continue;
      const auto chunk = row_group->ColumnChunk(leaves[column].index);
      const std::int64_t first = chunk->has_dictionary_page() ? chunk->dictionary_page_offset() : chunk->data_page_offset();
      const std::int64_t size = chunk->total_compressed_size();
      if (first < 0 || size < 0 || static_cast<std::uint64_t>(first) > source.size()) continue;
      const auto begin = static_cast<std::uint64_t>(first);
      parts.push_back({.begin = begin, .end = begin + std::min(static_cast<std::uint64_t>(size), source.size() - begin)});
      bytes += parts.back().end - begin;
      if (bytes > kMostPrefetched) return {};
    }
  }
  std::ranges::sort(parts, {}, &Extent::begin);
  return file.prefetch(parts);
}

class FileReader final : public Reader {
 public:
  explicit FileReader(const Source& source) : source_(source), file_(std::make_shared<SourceFile>(source)) {}

  // Reads the footer and the blocks. Lets Arrow's exceptions pass.
  Result<void> open() {
    const auto reader = ::parquet::ParquetFileReader::Open(file_, make_properties());
    metadata_ = reader->metadata();
    if (metadata_->is_encryption_algorithm_set()) return fail(Errc::kUnsupported, "the file is encrypted");
    auto leaves = TRY(find_leaves(*metadata_->schema()));
    leaves_ = leaves;
    auto starts = TRY(add_up_rows(*metadata_));
    starts_ = std::move(starts);
    TRY(check_codecs(*metadata_, leaves_));

    TRY(prefetch_table(*metadata_, leaves_, source_, *file_));
    blocks_.resize(starts_.back());
    Budget budget(kMostTableBytes - blocks_.size() * sizeof(Block));
    for (std::size_t group = 0; group + 1 < starts_.size(); ++group) {
      auto read = guard(Errc::kCorrupt,
                        [&] { return read_blocks(*reader->RowGroup(static_cast<int>(group)), leaves_, budget, rows_of(group)); });
      if (!read) return fail_at(fmt::format("row group {}", group), std::move(read.error()));
    }
    file_->drop_prefetched();
    return {};
  }

  std::span<const Block> blocks() const override { return blocks_; }

  Result<Values> read(std::size_t block) const override {
    return in_group(block, [&](std::size_t group, std::size_t row) { return read_row(group, row); });
  }

  Result<std::optional<std::string>> read_time_aware(std::size_t block) const override {
    return in_group(block, [&](std::size_t group, std::size_t row) -> Result<std::optional<std::string>> {
      const auto reader = ::parquet::ParquetFileReader::Open(file_, make_properties(), metadata_);
      std::vector<Block> rows(rows_of(group).size());
      Budget budget(kMostTableBytes);
      TRY(parquet::read_time_aware(*reader->RowGroup(static_cast<int>(group)), leaves_, budget, rows));
      return std::move(rows[row].time_aware_quant_json);
    });
  }

 private:
  using Rows = std::vector<Values>;

  // Calls work(row group, row within it) for a block.
  template <class Work>
  auto in_group(std::size_t block, Work&& work) const -> decltype(work(block, block)) {
    if (block >= blocks_.size())
      return fail(Errc::kInvalidArgument, "block {} is out of range: there are {} blocks", block, blocks_.size());
    const auto end = std::ranges::upper_bound(starts_, block);
    const auto group = static_cast<std::size_t>(end - starts_.begin()) - 1;
    auto result = guard(Errc::kCorrupt, [&] { return work(group, block - starts_[group]); });
    if (result) return result;
    const Block& failed = blocks_[block];
    return fail_at(fmt::format("block {} of {}: row group {}", failed.block, quote(failed.layer_name), group),
                   std::move(result.error()));
  }

  std::span<const Block> rows_of(std::size_t group) const {
    return std::span(blocks_).subspan(starts_[group], starts_[group + 1] - starts_[group]);
  }
  std::span<Block> rows_of(std::size_t group) {
    return std::span(blocks_).subspan(starts_[group], starts_[group + 1] - starts_[group]);
  }

  Result<Values> read_row(std::size_t group, std::size_t row) const {
    if (rows_of(group).size() > 1 && is_small(group)) {
      const auto rows = TRY(read_group(group));
      if (rows != nullptr) return (*rows)[row];
    }
    Budget budget(UINT64_MAX);
    auto rows = TRY(read_rows(group, row, 1, budget));
    return std::move(rows.front());
  }

  // Arrow's readers are not thread-safe, so each read opens one. They share the footer, which is constant, and the file.
  Result<Rows> read_rows(std::size_t group, std::size_t first, std::size_t count, Budget& budget) const {
    const auto reader = ::parquet::ParquetFileReader::Open(file_, make_properties(), metadata_);
    return read_values(*reader->RowGroup(static_cast<int>(group)), leaves_, first, rows_of(group).subspan(first, count), budget);
  }

  // All rows of a group, read once for all threads; null if they are too large for the cache.
  Result<std::shared_ptr<const Rows>> read_group(std::size_t group) const {
    const std::scoped_lock lock(mutex_);
    const auto cached = std::ranges::find(cache_, group, &CachedGroup::group);
    if (cached != cache_.end() && cached->rows != nullptr) {
      std::rotate(cache_.begin(), cached, cached + 1);
      return cache_.front().rows;
    }
    Budget budget(kMostCachedBytes);
    auto rows = read_rows(group, 0, rows_of(group).size(), budget);
    if (budget.exceeded()) return nullptr;
    if (!rows) return std::unexpected(std::move(rows.error()));
    std::ranges::rotate(cache_, cache_.end() - 1);
    cache_.front() = {.group = group, .rows = std::make_shared<const Rows>(std::move(*rows))};
    return cache_.front().rows;
  }

  bool is_small(std::size_t group) const {
    const auto row_group = metadata_->RowGroup(static_cast<int>(group));
    std::int64_t rest = kMostCachedBytes;
    for (const ColumnId column : {kData, kScales, kZeroPoints}) {
      const std::int64_t size = row_group->ColumnChunk(leaves_[column].index)->total_uncompressed_size();
      if (size < 0 || size > rest) return false;
      rest -= size;
    }
    return true;
  }

  struct CachedGroup {
    std::size_t group = 0;
    std::shared_ptr<const Rows> rows;
  };

  const Source& source_;
  std::shared_ptr<SourceFile> file_;
  std::shared_ptr<::parquet::FileMetaData> metadata_;
  Leaves leaves_{};
  std::vector<std::uint64_t> starts_;
  std::vector<Block> blocks_;
  mutable std::mutex mutex_;
  mutable std::array<CachedGroup, kCachedGroups> cache_;  // most recently used first
};

}  // namespace

Result<std::unique_ptr<Reader>> open_reader(const Source& source) {
  TRY(check_frame(source));
  return guard(Errc::kCorrupt, [&]() -> Result<std::unique_ptr<Reader>> {
    auto reader = std::make_unique<FileReader>(source);
    TRY(reader->open());
    return reader;
  });
}

}  // namespace ballast::parquet
