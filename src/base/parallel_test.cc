#include "base/parallel.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ParallelFor, VisitsEveryItemOnce) {
  for (const unsigned threads : {0U, 1U, 2U, 64U}) {
    std::vector<std::atomic<int>> visits(1000);
    parallel_for(visits.size(), threads, [&](unsigned, std::size_t i) {
      ++visits[i];
      return true;
    });
    for (const auto& count : visits) EXPECT_EQ(count, 1);
  }
}

TEST(ParallelFor, FalseStopsTheRest) {
  std::atomic<std::size_t> calls = 0;
  parallel_for(1'000'000, 4, [&](unsigned, std::size_t) {
    ++calls;
    return false;
  });
  EXPECT_LE(calls, 4);
}

TEST(ParallelFor, RethrowsAnExceptionOfAnyThread) {
  const auto throws = [](unsigned, std::size_t i) -> bool {
    if (i == 500) throw std::runtime_error("no");
    return true;
  };
  for (const unsigned threads : {1U, 8U}) EXPECT_THROW(parallel_for(1000, threads, throws), std::runtime_error);
}

TEST(TryParallel, TheFirstFailureIsTheResult) {
  std::atomic<int> done = 0;
  const auto count = [&](unsigned, std::size_t i) -> Result<void> {
    ++done;
    if (i == 3) return std::unexpected(Error{.code = Errc::kIo, .message = "three"});
    return {};
  };
  EXPECT_TRUE(try_parallel(3, 2, count));
  EXPECT_EQ(done, 3);
  const auto failed = try_parallel(1000, 1, count);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "three");
  EXPECT_EQ(done, 3 + 4);  // the rest was not run
}

}  // namespace
}  // namespace ballast
