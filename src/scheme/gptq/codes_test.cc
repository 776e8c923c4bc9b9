#include "scheme/gptq/codes.h"

#include <array>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/tensors.h"

namespace ballast {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using enum DType;

using Block = std::array<float, 32>;

Block unpack(const std::vector<std::uint32_t>& words, const GptqPacking& packing) {
  Block codes{};
  unpack_gptq(words.data(), packing, codes.data());
  return codes;
}

// 0, 1, …, `count` - 1, and again.
Block counting(unsigned count) {
  Block codes{};
  for (unsigned i = 0; i < codes.size(); ++i) codes[i] = static_cast<float>(i % count);
  return codes;
}

TEST(GptqCodes, PublishedWords) {
  EXPECT_THAT(unpack({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98}, {.bits = 4}), ElementsAreArray(counting(16)));
  EXPECT_THAT(unpack({0x88FAC688, 0xC688FAC6, 0xFAC688FA}, {.bits = 3}), ElementsAreArray(counting(8)));
  EXPECT_THAT(unpack({0xE4E4E4E4, 0xE4E4E4E4}, {.bits = 2}), ElementsAreArray(counting(4)));
  EXPECT_THAT(
      unpack({0x03020100, 0x07060504, 0x0B0A0908, 0x0F0E0D0C, 0x13121110, 0x17161514, 0x1B1A1918, 0x1F1E1D1C}, {.bits = 8}),
      ElementsAreArray(counting(32)));
}

TEST(GptqCodes, Planes) {
  EXPECT_THAT(unpack({0xE4E4E4E4, 0xE4E4E4E4, 0xF0F0F0F0}, {.bits = 3, .planes = true}), ElementsAreArray(counting(8)));
  EXPECT_THAT(unpack({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98, 0xFFFF0000}, {.bits = 5, .planes = true}),
              ElementsAreArray(counting(32)));
  // 6 and 7 bits: the same, and every code has 32 or 64 more.
  Block more = counting(32);
  for (float& code : more) code += 32;
  EXPECT_THAT(unpack({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98, 0xAAAAAAAA, 0xFFFFFFFF}, {.bits = 6, .planes = true}),
              ElementsAreArray(more));
  for (float& code : more) code += 32;
  EXPECT_THAT(
      unpack({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98, 0x00000000, 0x55555555, 0xFFFFFFFF}, {.bits = 7, .planes = true}),
      ElementsAreArray(more));
  EXPECT_THAT(unpack({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98}, {.bits = 4, .planes = true}),
              ElementsAreArray(counting(16)));
}

// One word in each group.
Model zeros_model(const std::string& file) { return Model::from_bytes(test::as_bytes(file), "m.safetensors").value(); }

std::string zeros_file(std::initializer_list<std::uint32_t> words) {
  const std::uint64_t count = words.size();
  return test::safetensors({{"qzeros", kI32, {1, count}, test::raw(words)}});
}

std::vector<float> read_zeros(const std::string& file, unsigned bits, GptqZeros stored, std::uint64_t first,
                              std::uint64_t count) {
  const Model model = zeros_model(file);
  const auto zeros = gptq_zeros({.tensor = model.find("qzeros"), .packing = {.bits = bits}, .stored = stored});
  std::vector<float> values(count);
  const auto read = zeros->read(model, first, count, values);
  EXPECT_TRUE(read) << read.error().message;
  return values;
}

TEST(GptqZeros, OneIsAddedToEveryCodeOrToWords) {
  const std::string file = zeros_file({0x7777776F});
  EXPECT_THAT(read_zeros(file, 4, GptqZeros::kMinusOne, 0, 8), ElementsAre(16, 7, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(read_zeros(file, 4, GptqZeros::kMinusOneInWords, 0, 8), ElementsAre(0, 8, 8, 8, 8, 8, 8, 8));
  EXPECT_THAT(read_zeros(file, 4, GptqZeros::kSame, 0, 8), ElementsAre(15, 6, 7, 7, 7, 7, 7, 7));
}

TEST(GptqZeros, BorrowInOtherWidths) {
  // 0, 2, 2, … of 2 bits; 0, 128, 128, 128 of 8 bits.
  EXPECT_THAT(read_zeros(zeros_file({0xAAAAAAA8 - 0x55555555U}), 2, GptqZeros::kMinusOneInWords, 0, 4), ElementsAre(0, 2, 2, 2));
  EXPECT_THAT(read_zeros(zeros_file({0x80808000 - 0x01010101U}), 8, GptqZeros::kMinusOneInWords, 0, 4),
              ElementsAre(0, 128, 128, 128));
  // 3 bits wrap around instead: 7 is 0.
  EXPECT_THAT(read_zeros(zeros_file({0x88FAC688, 0xC688FAC6, 0xFAC688FA}), 3, GptqZeros::kMinusOneInWords, 5, 5),
              ElementsAre(6, 7, 0, 1, 2));
  EXPECT_THAT(read_zeros(zeros_file({0x88FAC688, 0xC688FAC6, 0xFAC688FA}), 3, GptqZeros::kMinusOne, 5, 5),
              ElementsAre(6, 7, 8, 1, 2));
}

TEST(GptqZeros, RowsFromTheMiddle) {
  const std::string file = zeros_file({0x76543210, 0xFEDCBA98, 0x76543210, 0xFEDCBA98, 0x11111111});
  EXPECT_THAT(read_zeros(file, 4, GptqZeros::kSame, 30, 5), ElementsAre(14, 15, 1, 1, 1));
  EXPECT_THAT(read_zeros(file, 4, GptqZeros::kSame, 39, 1), ElementsAre(1));
}

std::vector<std::string> zero_defects(const std::string& file, GptqZeros stored, bool is_symmetric) {
  const Model model = zeros_model(file);
  const auto zeros =
      gptq_zeros({.tensor = model.find("qzeros"), .packing = {.bits = 4}, .stored = stored, .is_symmetric = is_symmetric});
  return zeros->check_values(model).value();
}

TEST(GptqZeros, DefectsAreCounted) {
  const std::string even = zeros_file({0x77777777});
  const std::string odd = zeros_file({0x7777776F});
  EXPECT_THAT(zero_defects(even, GptqZeros::kMinusOne, true), IsEmpty());
  EXPECT_THAT(zero_defects(odd, GptqZeros::kMinusOneInWords, false), IsEmpty());
  EXPECT_THAT(zero_defects(odd, GptqZeros::kMinusOneInWords, true),
              ElementsAre("tensor 'qzeros': sym is true, but 1 of 8 zero points are not 8"));
  EXPECT_THAT(zero_defects(odd, GptqZeros::kMinusOne, false),
              ElementsAre("tensor 'qzeros': 1 of 8 zero points are stored as 15, which some programs read as 16, others as 0"));
}

}  // namespace
}  // namespace ballast
