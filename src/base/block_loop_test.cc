#include "base/block_loop.h"

#include <atomic>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace ballast {
namespace {

Result<void> fail_with(const std::string& message) { return std::unexpected(Error{.code = Errc::kCorrupt, .message = message}); }

TEST(BlockLoop, VisitsEveryBlockOnceAndAddsUpItsBytes) {
  std::vector<std::atomic<int>> visits(100);
  std::uint64_t last = 0;
  std::set<std::string> names;
  const Progress progress = [&](std::uint64_t done, std::uint64_t total, std::string_view what) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 1007U);
    last = done;
    names.emplace(what);
    return true;
  };
  const auto result = BlockLoop{.work = {.threads = 4, .progress = progress}, .total = 1007, .before = 7}.run(
      visits.size(),
      [&](unsigned worker, std::size_t i) -> Result<void> {
        EXPECT_LT(worker, 4U);
        ++visits[i];
        return {};
      },
      [](std::size_t i) { return BlockDone{.bytes = 10, .what = i % 2 == 0 ? "even" : "odd"}; });
  EXPECT_TRUE(result);
  EXPECT_EQ(last, 1007U);
  EXPECT_EQ(names.size(), 2U);
  for (const auto& count : visits) EXPECT_EQ(count, 1);
}

TEST(BlockLoop, StopsAtTheFirstFailureAndReturnsIt) {
  std::size_t calls = 0;
  const auto result = BlockLoop{.work = {.threads = 1}}.run(
      10,
      [&](unsigned, std::size_t i) {
        ++calls;
        return i == 3 ? fail_with("block 3") : Result<void>();
      },
      [](std::size_t) { return BlockDone{}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "block 3");
  EXPECT_EQ(calls, 4U);
}

TEST(BlockLoop, ACallbackThatReturnsFalseCancels) {
  std::size_t reports = 0;
  const Progress progress = [&](std::uint64_t, std::uint64_t, std::string_view) { return ++reports < 2; };
  const auto result = BlockLoop{.work = {.threads = 1, .progress = progress}}.run(
      10, [](unsigned, std::size_t) { return Result<void>(); }, [](std::size_t) { return BlockDone{.bytes = 1}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kCancelled);
  EXPECT_EQ(reports, 2U);
}

TEST(BlockLoop, AStopTokenCancelsBeforeTheNextBlock) {
  std::size_t calls = 0;
  const auto result = BlockLoop{.work = {.threads = 1, .stop = [&] { return calls == 2; }}}.run(
      10,
      [&](unsigned, std::size_t) {
        ++calls;
        return Result<void>();
      },
      [](std::size_t) { return BlockDone{}; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kCancelled);
  EXPECT_EQ(calls, 2U);
}

TEST(BlockLoop, AFailedBlockIsNotReported) {
  const Progress progress = [](std::uint64_t, std::uint64_t, std::string_view) {
    ADD_FAILURE();
    return true;
  };
  EXPECT_FALSE((BlockLoop{.work = {.threads = 1, .progress = progress}}.run(
      1, [](unsigned, std::size_t) { return fail_with("x"); }, [](std::size_t) { return BlockDone{}; })));
}

TEST(ThreadsWithin, IsAtLeastOneAndAtMostTheRequestedNumber) {
  EXPECT_EQ(threads_within(100, 30, 8), 3U);
  EXPECT_EQ(threads_within(10, 30, 8), 1U);
  EXPECT_EQ(threads_within(1000, 1, 2), 2U);
}

}  // namespace
}  // namespace ballast
