#pragma once

#include <arrow/io/interfaces.h>

#include "source/source.h"

namespace ballast::parquet {

// A source as Arrow reads files. Thread-safe: there is no position.
class SourceFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SourceFile(const Source& source) : source_(source) {}  // borrowed

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
  const Source& source_;
};

}  // namespace ballast::parquet
