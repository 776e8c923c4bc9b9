#include "base/name_index.h"

#include <deque>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(NameIndex, EmptyIndexFindsNothing) {
  EXPECT_EQ(NameIndex().find({}, "a"), std::nullopt);
  EXPECT_EQ(NameIndex(0).find({}, "a"), std::nullopt);
}

TEST(NameIndex, FindsWhatWasInserted) {
  std::deque<std::string> names;
  std::vector<TensorInfo> table;
  for (int i = 0; i < 10'000; ++i) table.push_back({.name = names.emplace_back(fmt::format("layers.{}.weight", i))});
  NameIndex index(table.size());
  for (std::uint32_t i = 0; i < table.size(); ++i) EXPECT_EQ(index.insert(table, i), std::nullopt);
  for (std::uint32_t i = 0; i < table.size(); ++i) EXPECT_EQ(index.find(table, table[i].name), i);
  EXPECT_EQ(index.find(table, "layers.10000.weight"), std::nullopt);
  EXPECT_EQ(index.find(table, ""), std::nullopt);
}

TEST(NameIndex, InsertsAWholeTable) {
  std::deque<std::string> names;
  std::vector<TensorInfo> table;
  for (int i = 0; i < 1'000; ++i) table.push_back({.name = names.emplace_back(fmt::format("layers.{}.weight", i))});
  NameIndex index(table.size());
  EXPECT_EQ(index.insert_all(table), std::nullopt);
  for (std::uint32_t i = 0; i < table.size(); ++i) EXPECT_EQ(index.find(table, table[i].name), i);
}

TEST(NameIndex, InsertsTablesOfAnySize) {
  std::deque<std::string> names;
  std::vector<TensorInfo> table;
  for (int i = 0; i < 200'000; ++i) table.push_back({.name = names.emplace_back(fmt::format("layers.{}.weight", i))});
  for (const std::size_t size : {0U, 1U, 31U, 32U, 33U, 64U, 65'535U, 65'536U, 200'000U}) {
    const auto part = std::span(table).first(size);
    NameIndex index(size);
    EXPECT_EQ(index.insert_all(part), std::nullopt);
    for (std::uint32_t i = 0; i < size; ++i) ASSERT_EQ(index.find(part, part[i].name), i);
    EXPECT_EQ(index.find(part, "layers.200000.weight"), std::nullopt);
  }
}

TEST(NameIndex, InsertAllReturnsBothPositionsOfADuplicate) {
  for (const std::uint32_t second : {1U, 15U, 31U, 32U, 33U, 64U, 99U}) {
    std::deque<std::string> names;
    std::vector<TensorInfo> table;
    for (int i = 0; i < 100; ++i) table.push_back({.name = names.emplace_back(fmt::format("layers.{}.weight", i))});
    table[second].name = table[0].name;
    NameIndex index(table.size());
    EXPECT_EQ(index.insert_all(table), (std::pair<std::uint32_t, std::uint32_t>(0, second)));
  }
}

TEST(NameIndex, InsertFirstReturnsAllDuplicates) {
  std::deque<std::string> names;
  std::vector<TensorInfo> table;
  for (int i = 0; i < 100; ++i) table.push_back({.name = names.emplace_back(fmt::format("layers.{}.weight", i % 60))});
  table[99].name = table[0].name;
  NameIndex index(table.size());
  const auto duplicates = index.insert_first(table);
  ASSERT_EQ(duplicates.size(), 40);
  for (std::uint32_t i = 0; i < 39; ++i) EXPECT_EQ(duplicates[i], (std::pair<std::uint32_t, std::uint32_t>(i, i + 60)));
  EXPECT_EQ(duplicates[39], (std::pair<std::uint32_t, std::uint32_t>(0, 99)));
  for (std::uint32_t i = 0; i < 60; ++i) EXPECT_EQ(index.find(table, table[i].name), i);
}

TEST(NameIndex, InsertReturnsThePositionOfTheFirst) {
  const std::vector<TensorInfo> table{{.name = "a"}, {.name = ""}, {.name = "a"}, {.name = ""}};
  NameIndex index(table.size());
  EXPECT_EQ(index.insert(table, 0), std::nullopt);
  EXPECT_EQ(index.insert(table, 1), std::nullopt);
  EXPECT_EQ(index.insert(table, 2), 0);
  EXPECT_EQ(index.insert(table, 3), 1);
  EXPECT_EQ(index.find(table, "a"), 0);
}

}  // namespace
}  // namespace ballast
