#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "source/source.h"
#include "tests/support/files.h"

namespace ballast::test {

// The bytes of a file, which adds to `count` how many of them are read.
class CountingSource final : public Source {
 public:
  CountingSource(std::string bytes, std::atomic<std::uint64_t>& count)
      : bytes_(std::move(bytes)), memory_(open_memory(as_bytes(bytes_))), count_(count) {}
  std::uint64_t size() const override { return memory_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    count_ += out.size();
    return memory_->read_at(offset, out);
  }
  Result<std::span<const std::byte>> map() const override { return memory_->map(); }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  std::string bytes_;
  std::unique_ptr<Source> memory_;
  std::atomic<std::uint64_t>& count_;
};

}  // namespace ballast::test
