#include "format/parquet/source_file.h"

#include <algorithm>
#include <span>
#include <utility>

#include <arrow/buffer.h>
#include <arrow/memory_pool.h>

#include "format/parquet/arrow_error.h"

namespace ballast::parquet {
namespace {

// The number of bytes, at most `size`, from `position` to the end.
arrow::Result<std::int64_t> available(const Source& source, std::int64_t position, std::int64_t size) {
  if (position < 0 || size < 0) return arrow::Status::Invalid("invalid range of ", size, " bytes at ", position);
  const std::uint64_t rest = source.size() - std::min(source.size(), static_cast<std::uint64_t>(position));
  return static_cast<std::int64_t>(std::min(rest, static_cast<std::uint64_t>(size)));
}

}  // namespace

Result<void> SourceFile::prefetch(std::span<const Extent> parts) {
  std::vector<Range> ranges;
  prefetched_.clear();
  prefetched_.reserve(parts.size());
  for (const Extent& part : parts) {
    prefetched_.push_back({.extent = part, .bytes = std::vector<std::byte>(part.end - part.begin)});
    ranges.push_back({.offset = part.begin, .out = prefetched_.back().bytes});
  }
  return source_.read_ranges(ranges);
}

bool SourceFile::copy_prefetched(std::uint64_t position, std::span<std::byte> out) const {
  const auto behind =
      std::ranges::upper_bound(prefetched_, position, {}, [](const Prefetched& piece) { return piece.extent.begin; });
  if (behind == prefetched_.begin()) return false;
  const Prefetched& piece = *std::prev(behind);
  if (position > piece.extent.end || out.size() > piece.extent.end - position) return false;
  std::ranges::copy(std::span(piece.bytes).subspan(position - piece.extent.begin, out.size()), out.begin());
  return true;
}

arrow::Result<std::int64_t> SourceFile::GetSize() { return static_cast<std::int64_t>(source_.size()); }

arrow::Result<std::int64_t> SourceFile::ReadAt(std::int64_t position, std::int64_t size, void* out) {
  ARROW_ASSIGN_OR_RAISE(const std::int64_t length, available(source_, position, size));
  if (length == 0) return 0;
  const std::span bytes(static_cast<std::byte*>(out), static_cast<std::size_t>(length));
  if (copy_prefetched(static_cast<std::uint64_t>(position), bytes)) return length;
  auto read = source_.read_at(static_cast<std::uint64_t>(position), bytes);
  if (!read) return to_status(std::move(read.error()));
  return length;
}

arrow::Result<std::shared_ptr<arrow::Buffer>> SourceFile::ReadAt(std::int64_t position, std::int64_t size) {
  ARROW_ASSIGN_OR_RAISE(const std::int64_t length, available(source_, position, size));
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<arrow::Buffer> buffer, arrow::AllocateBuffer(length, arrow::system_memory_pool()));
  ARROW_RETURN_NOT_OK(ReadAt(position, length, buffer->mutable_data()));
  return buffer;
}

arrow::Result<std::int64_t> SourceFile::Tell() const { return arrow::Status::NotImplemented("a source has no position"); }
arrow::Status SourceFile::Seek(std::int64_t) { return arrow::Status::NotImplemented("a source has no position"); }
arrow::Result<std::int64_t> SourceFile::Read(std::int64_t, void*) { return Tell(); }
arrow::Result<std::shared_ptr<arrow::Buffer>> SourceFile::Read(std::int64_t) {
  return arrow::Status::NotImplemented("a source has no position");
}

}  // namespace ballast::parquet
