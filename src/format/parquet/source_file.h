#pragma once

#include <memory>
#include <span>
#include <vector>

#include <arrow/io/interfaces.h>

#include "source/source.h"

namespace ballast::parquet {

// Lets Arrow read a source. Thread-safe, because it has no file position.
class SourceFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SourceFile(const Source& source) : source_(source) {}  // `source` must outlive this object

  // Reads sorted parts in parallel and keeps them until drop_prefetched(), because Arrow reads many small pieces one by one. Not
  // thread-safe.
  Result<void> prefetch(std::span<const Extent> parts);
  void drop_prefetched() { prefetched_.clear(); }

  // NOLINTBEGIN(readability-identifier-naming): Arrow's names
  arrow::Result<std::int64_t> GetSize() override;
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t size) override;

  arrow::Status Close() override { return arrow::Status::OK(); }
  bool closed() const override { return false; }
  arrow::Result<std::int64_t> Tell() const override;
  arrow::Status Seek(std::int64_t position) override;
  arrow::Result<std::int64_t> Read(std::int64_t size, void* out) override;
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t size) override;
  // NOLINTEND(readability-identifier-naming)

 private:
  struct Prefetched {
    Extent extent;
    std::vector<std::byte> bytes;
  };

  bool copy_prefetched(std::uint64_t position, std::span<std::byte> out) const;

  const Source& source_;
  std::vector<Prefetched> prefetched_;
};

}  // namespace ballast::parquet
