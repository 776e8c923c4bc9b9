#include "source/remote/transfers.h"

#include <numeric>

#include <gtest/gtest.h>

namespace ballast::remote {
namespace {

class Transfers : public testing::Test {
 protected:
  // Nothing is read, so all ranges can share one buffer.
  Range range(std::uint64_t offset, std::uint64_t size) {
    if (room_.size() < size) room_.resize(size);
    return {.offset = offset, .out = std::span(room_.data(), size)};
  }

  std::vector<std::byte> room_ = std::vector<std::byte>(32 << 20);
};

TEST_F(Transfers, AdjacentRangesShareARequest) {
  const std::vector ranges{range(100, 10), range(110, 10), range(125, 10)};
  const auto transfers = plan_transfers(ranges);
  ASSERT_EQ(transfers.size(), 1);
  EXPECT_EQ(transfers[0].begin, 100);
  EXPECT_EQ(transfers[0].end, 135);
  EXPECT_EQ(transfers[0].parts.size(), 3);
}

TEST_F(Transfers, AtMostHalfIsDiscarded) {
  std::vector<Range> ranges;
  for (std::uint64_t i = 0; i < 1000; ++i) ranges.push_back(range(i * 4096, 2048 - i % 7));
  std::uint64_t needed = 0;
  for (const Range& part : ranges) needed += part.out.size();
  std::uint64_t read = 0;
  for (const Transfer& transfer : plan_transfers(ranges)) read += transfer.end - transfer.begin;
  EXPECT_LE(read, 2 * needed);
  EXPECT_LT(plan_transfers(ranges).size(), 100);
}

TEST_F(Transfers, DistantRangesGetSeparateRequests) {
  const std::vector ranges{range(0, 16 << 10), range(48 << 10, 1 << 10)};
  EXPECT_EQ(plan_transfers(ranges).size(), 2);
  const std::vector large{range(0, 8 << 20), range((8 << 20) + (2 << 20), 8 << 20)};
  EXPECT_EQ(plan_transfers(large).size(), 2);
}

TEST_F(Transfers, LargeRangesAreSplit) {
  const std::vector ranges{range(5, 20 << 20)};
  const auto transfers = plan_transfers(ranges);
  ASSERT_EQ(transfers.size(), 3);
  std::uint64_t at = 5;
  for (const Transfer& transfer : transfers) {
    EXPECT_EQ(transfer.begin, at);
    EXPECT_LE(transfer.end - transfer.begin, 8 << 20);
    at = transfer.end;
  }
  EXPECT_EQ(at, 5 + (20 << 20));
}

TEST_F(Transfers, OverlappingAndEmptyRangesWork) {
  const std::vector ranges{range(0, 0), range(10, 100), range(20, 10), range(50, 100)};
  const auto transfers = plan_transfers(ranges);
  ASSERT_EQ(transfers.size(), 1);
  EXPECT_EQ(transfers[0].begin, 10);
  EXPECT_EQ(transfers[0].end, 150);
  EXPECT_TRUE(plan_transfers({}).empty());
}

}  // namespace
}  // namespace ballast::remote
