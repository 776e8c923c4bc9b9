#include "source/remote/read_ahead.h"

#include <atomic>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "tests/support/files.h"

namespace ballast::remote {
namespace {

using test::as_bytes;

// Counts reads and fails at a given position.
class Counted final : public Source {
 public:
  explicit Counted(const std::string& content) : memory_(open_memory(as_bytes(content))) {}
  std::uint64_t size() const override { return memory_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    reads += 1;
    bytes += out.size();
    if (offset <= fails_at && fails_at < offset + out.size()) {
      return std::unexpected(Error{.code = Errc::kIo, .message = "broken"});
    }
    if (is_cancelled) return std::unexpected(Error{.code = Errc::kCancelled, .message = "cancelled"});
    return memory_->read_at(offset, out);
  }
  Result<std::span<const std::byte>> map() const override { return memory_->map(); }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

  mutable std::atomic<std::uint64_t> reads = 0;
  mutable std::atomic<std::uint64_t> bytes = 0;
  std::uint64_t fails_at = UINT64_MAX;
  std::atomic<bool> is_cancelled = false;

 private:
  std::unique_ptr<Source> memory_;
};

class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() : bytes_(100'000, '\0') {
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<char>(i * 7919 >> 3);
    auto counted = std::make_unique<Counted>(bytes_);
    counted_ = counted.get();
    source_ = read_ahead(std::move(counted), {.chunk_bytes = 1000, .chunks = 4});
  }

  std::string read(std::uint64_t offset, std::size_t count) {
    std::string text(count, '\0');
    const auto done = source_->read_at(offset, std::as_writable_bytes(std::span(text)));
    return done ? text : "failed: " + done.error().message;
  }

  std::string bytes_;
  Counted* counted_ = nullptr;
  std::unique_ptr<Source> source_;
};

TEST_F(ReadAheadTest, WithoutExpectReadsArePassedThrough) {
  EXPECT_EQ(read(17, 5000), bytes_.substr(17, 5000));
  EXPECT_EQ(counted_->reads, 1);
  EXPECT_EQ(counted_->bytes, 5000);
}

TEST_F(ReadAheadTest, ExpectedBytesAreReadOnce) {
  const std::array extents{Extent{.begin = 100, .end = 40'100}, Extent{.begin = 50'000, .end = 90'000}};
  source_->expect(extents);
  EXPECT_EQ(counted_->reads, 0);  // nothing is fetched before the first read
  for (const Extent& extent : extents) {
    for (std::uint64_t at = extent.begin; at < extent.end; at += 700) {
      const std::uint64_t count = std::min<std::uint64_t>(700, extent.end - at);
      ASSERT_EQ(read(at, count), bytes_.substr(at, count)) << at;
    }
  }
  EXPECT_GE(counted_->bytes, 80'000);
  EXPECT_LE(counted_->bytes, 83'000);  // of a chunk that was not started, only the requested bytes are read
}

TEST_F(ReadAheadTest, AnyOrderAndThreadGetsTheRightBytes) {
  const std::array extents{Extent{.begin = 0, .end = 100'000}};
  source_->expect(extents);
  parallel_for(300, 4, [&](unsigned, std::size_t i) {
    const std::uint64_t at = i * 7919 % 99'000;
    EXPECT_EQ(read(at, 1000), bytes_.substr(at, 1000));
    if (i % 100 == 50) source_->expect(extents);
    return true;
  });
}

TEST_F(ReadAheadTest, ErrorsReachTheReader) {
  counted_->fails_at = 2500;
  source_->expect(std::array{Extent{.begin = 0, .end = 10'000}});
  EXPECT_EQ(read(0, 1000), bytes_.substr(0, 1000));
  EXPECT_EQ(read(2000, 1000), "failed: broken");
  EXPECT_EQ(read(5000, 1000), bytes_.substr(5000, 1000));
}

TEST_F(ReadAheadTest, WhatWasCancelledForOneReaderIsReadByTheNext) {
  source_->expect(std::array{Extent{.begin = 0, .end = 4000}});
  counted_->is_cancelled = true;
  EXPECT_EQ(read(0, 1000), "failed: cancelled");
  while (counted_->reads < 4) std::this_thread::yield();  // the first chunk is read by the caller, three are fetched
  counted_->is_cancelled = false;
  EXPECT_TRUE(read(0, 4000) == bytes_.substr(0, 4000));
}

TEST_F(ReadAheadTest, ReadsAcrossTheEdgesOfExpectedExtents) {
  source_->expect(std::array{Extent{.begin = 1500, .end = 4700}, Extent{.begin = 8000, .end = 9000}});
  EXPECT_EQ(read(0, 100'000), bytes_);
  EXPECT_EQ(read(99'999, 1), bytes_.substr(99'999));
}

}  // namespace
}  // namespace ballast::remote
