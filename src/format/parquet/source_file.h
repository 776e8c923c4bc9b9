#pragma once

#include <memory>
#include <span>
#include <vector>

#include <arrow/io/interfaces.h>

#include "source/source.h"

namespace ballast::parquet {

// A source as Arrow reads files. Thread-safe: there is no position.
class SourceFile final : public arrow::io::RandomAccessFile {
 public:
  explicit SourceFile(const Source& source) : source_(source) {}  // borrowed

  // Reads parts, in order, at the same time, so that Arrow, which asks for one small thing after another, finds them here until
  // let_go(). Not while others read.
  Result<void> hold(std::span<const Extent> parts);
  void let_go() { held_.clear(); }

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
  struct Held {
    Extent extent;
    std::vector<std::byte> bytes;
  };

  bool copy_held(std::uint64_t position, std::span<std::byte> out) const;

  const Source& source_;
  std::vector<Held> held_;
};

}  // namespace ballast::parquet
