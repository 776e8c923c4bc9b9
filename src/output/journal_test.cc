#include "output/journal.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

Result<Journal> open(const test::TempDir& dir, std::string_view key, int* syncs = nullptr) {
  return Journal::open(dir.path("journal"), key, [syncs]() -> Result<void> {
    if (syncs != nullptr) ++*syncs;
    return {};
  });
}

TEST(Journal, RemembersWhatWasSynced) {
  const test::TempDir dir;
  int syncs = 0;
  {
    auto journal = open(dir, "key", &syncs);
    ASSERT_TRUE(journal) << journal.error().message;
    ASSERT_TRUE(journal->add(0, 10, 20));
    ASSERT_TRUE(journal->add(0, 30, 40));
    ASSERT_TRUE(journal->add(0, 20, 30));
    ASSERT_TRUE(journal->add(1, 0, 5));
    EXPECT_EQ(syncs, 0);
    ASSERT_TRUE(journal->flush());
    EXPECT_EQ(syncs, 1);
    ASSERT_TRUE(journal->add(1, 5, 10));  // never flushed
    EXPECT_FALSE(journal->has(0, 10, 20)) << "has() covers earlier runs only";
  }
  const auto journal = open(dir, "key");
  ASSERT_TRUE(journal);
  EXPECT_TRUE(journal->has(0, 10, 40));
  EXPECT_TRUE(journal->has(0, 15, 35));
  EXPECT_FALSE(journal->has(0, 9, 11));
  EXPECT_FALSE(journal->has(0, 39, 41));
  EXPECT_TRUE(journal->has(1, 0, 5));
  EXPECT_FALSE(journal->has(1, 5, 10));
  EXPECT_FALSE(journal->has(2, 0, 1));
}

TEST(Journal, AnotherKeyStartsANewJournal) {
  const test::TempDir dir;
  {
    auto journal = open(dir, "key1");
    ASSERT_TRUE(journal->add(0, 0, 10));
    ASSERT_TRUE(journal->flush());
  }
  EXPECT_FALSE(open(dir, "key2")->has(0, 0, 10));
  EXPECT_FALSE(open(dir, "key1")->has(0, 0, 10));
}

TEST(Journal, PartialRecordIsIgnored) {
  const test::TempDir dir;
  {
    auto journal = open(dir, "key");
    ASSERT_TRUE(journal->add(0, 0, 10));
    ASSERT_TRUE(journal->add(0, 100, 110));
    ASSERT_TRUE(journal->flush());
  }
  std::filesystem::resize_file(dir.path("journal"), std::filesystem::file_size(dir.path("journal")) - 1);
  {
    auto journal = open(dir, "key");
    EXPECT_TRUE(journal->has(0, 0, 10));
    EXPECT_FALSE(journal->has(0, 100, 110));
    ASSERT_TRUE(journal->add(0, 200, 210));
    ASSERT_TRUE(journal->flush());
  }
  EXPECT_TRUE(open(dir, "key")->has(0, 200, 210));
}

TEST(Journal, FlushesAutomatically) {
  const test::TempDir dir;
  int syncs = 0;
  auto journal = open(dir, "key", &syncs);
  ASSERT_TRUE(journal->add(0, 0, std::uint64_t{1} << 30));
  EXPECT_EQ(syncs, 1);
}

}  // namespace
}  // namespace ballast
