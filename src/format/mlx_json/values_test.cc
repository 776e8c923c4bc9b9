#include "format/mlx_json/values.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "format/mlx_json/float_layout.h"
#include "tests/support/files.h"

namespace ballast::mlx_json {
namespace {

using test::as_bytes;
using test::raw;

std::string format(DType dtype, std::string_view bytes) {
  std::string text;
  append_values(dtype, as_bytes(bytes), text);
  return text;
}

// The bytes of one value as a hexadecimal number; "none" if the value does not fit the dtype.
std::string parse(DType dtype, std::string_view entry) {
  std::array<std::byte, 8> out{};
  if (!parse_value(dtype, entry, out.data())) return "none";
  return fmt::format("{:0{}x}", std::bit_cast<std::uint64_t>(out), bits(dtype) / 4);
}

// Splits the output of append_values() and parses each entry, alone and in a run.
template <class Code>
void expect_round_trip(DType dtype, const std::vector<Code>& codes) {
  const std::string bytes(reinterpret_cast<const char*>(codes.data()), codes.size() * sizeof(Code));
  const std::string text = format(dtype, bytes) + ",";
  std::size_t at = 0;
  for (const Code code : codes) {
    const std::size_t comma = text.find(',', at);
    const std::string entry = text.substr(at, comma - at);
    Code alone{};
    ASSERT_TRUE(parse_value(dtype, entry, reinterpret_cast<std::byte*>(&alone))) << entry;
    ASSERT_EQ(alone, code) << entry;
    Code in_run{};
    const char* place = text.data() + at;
    const bool is_text = text[at] == '"';
    ASSERT_EQ(parse_run(dtype, place, text.data() + text.size(), 1, reinterpret_cast<std::byte*>(&in_run)), is_text ? 0 : 1)
        << entry;
    ASSERT_EQ(in_run, is_text ? Code{} : code) << entry;
    at = comma + 1;
  }
  EXPECT_EQ(at, text.size());
}

TEST(MlxJsonValues, NumbersAreWrittenInTheShortestForm) {
  EXPECT_EQ(format(DType::kF32, raw({0.1F, -1.5F, 16777216.0F, 1e-45F, 3.4028235e38F, 0.0F, 100.0F})),
            "0.1,-1.5,16777216,1e-45,3.4028235e+38,0,100");
  EXPECT_EQ(format(DType::kF64, raw({0.1, 5e-324, 1e22})), "0.1,5e-324,1e+22");
  EXPECT_EQ(format(DType::kBF16, raw<std::uint16_t>({0x3dcd, 0x3f80, 0x0001, 0x7f7f, 0x42c8})), "0.1,1,9e-41,3.39e+38,100");
  EXPECT_EQ(format(DType::kF16, raw<std::uint16_t>({0x2e66, 0x3c00, 0x0001, 0x7bff})), "0.1,1,6e-08,65500");
  EXPECT_EQ(format(DType::kI8, "\x80\x7f"), "-128,127");
  EXPECT_EQ(format(DType::kU64, raw({std::numeric_limits<std::uint64_t>::max()})), "18446744073709551615");
  EXPECT_EQ(format(DType::kI64, raw({std::numeric_limits<std::int64_t>::min()})), "-9223372036854775808");
  EXPECT_EQ(format(DType::kBool, std::string("\0\1\2", 3)), "0,1,2");
  EXPECT_EQ(format(DType::kF32, ""), "");
}

TEST(MlxJsonValues, NegativeZeroIsNotWrittenAsAnInteger) {
  EXPECT_EQ(format(DType::kF32, raw({-0.0F})), "-0.0");
  EXPECT_EQ(format(DType::kF64, raw({-0.0})), "-0.0");
  EXPECT_EQ(format(DType::kF16, raw<std::uint16_t>({0x8000})), "-0.0");
  EXPECT_EQ(parse(DType::kF32, "-0"), "80000000");
  EXPECT_EQ(parse(DType::kBF16, "-0.0"), "8000");
}

TEST(MlxJsonValues, SpecialsAreWrittenAsStrings) {
  EXPECT_EQ(format(DType::kF32, raw<std::uint32_t>({0x7fc00000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000, 0x7f800001})),
            R"("NaN","Infinity","-Infinity","nan:7fc00001","nan:ffc00000","nan:7f800001")");
  EXPECT_EQ(format(DType::kF16, raw<std::uint16_t>({0x7e00, 0x7c00, 0xfc00, 0xfe00})),
            R"("NaN","Infinity","-Infinity","nan:fe00")");
  EXPECT_EQ(format(DType::kBF16, raw<std::uint16_t>({0x7fc0, 0x7f81})), R"("NaN","nan:7f81")");
  EXPECT_EQ(format(DType::kF64, raw<std::uint64_t>({0x7ff8000000000000, 0xfff0000000000001})), R"("NaN","nan:fff0000000000001")");
}

TEST(MlxJsonValues, SpecialsAreReadWithAndWithoutQuotes) {
  EXPECT_EQ(parse(DType::kF32, "NaN"), "7fc00000");
  EXPECT_EQ(parse(DType::kF32, R"("NaN")"), "7fc00000");
  EXPECT_EQ(parse(DType::kF16, "Infinity"), "7c00");
  EXPECT_EQ(parse(DType::kBF16, R"("-Infinity")"), "ff80");
  EXPECT_EQ(parse(DType::kF64, "-Infinity"), "fff0000000000000");
  EXPECT_EQ(parse(DType::kF32, R"("nan:FF800001")"), "ff800001");
}

TEST(MlxJsonValues, SpecialsOfAnotherDtypeAreRefused) {
  EXPECT_EQ(parse(DType::kF32, R"("nan:7e01")"), "none");
  EXPECT_EQ(parse(DType::kF16, R"("nan:7fc00001")"), "none");
  EXPECT_EQ(parse(DType::kF32, R"("nan:3f800000")"), "none");
  EXPECT_EQ(parse(DType::kF32, R"("nan:7f800000")"), "none");
  EXPECT_EQ(parse(DType::kF32, "nan:7fc00001"), "none");
  EXPECT_EQ(parse(DType::kF32, "nan"), "none");
  EXPECT_EQ(parse(DType::kF32, "inf"), "none");
  EXPECT_EQ(parse(DType::kI32, "NaN"), "none");
  EXPECT_EQ(parse(DType::kBool, R"("NaN")"), "none");
  EXPECT_EQ(parse(DType::kF32, "true"), "none");
  EXPECT_EQ(parse(DType::kI32, "false"), "none");
  EXPECT_EQ(parse(DType::kF32, ""), "none");
  EXPECT_EQ(parse(DType::kF32, "\""), "none");
}

TEST(MlxJsonValues, NumbersOutOfRangeAreRefused) {
  EXPECT_EQ(parse(DType::kF32, "1e39"), "none");
  EXPECT_EQ(parse(DType::kF32, "-1e99999999999999999999"), "none");
  EXPECT_EQ(parse(DType::kF64, "1e309"), "none");
  EXPECT_EQ(parse(DType::kF16, "70000"), "none");
  EXPECT_EQ(parse(DType::kF16, "65520"), "none");
  EXPECT_EQ(parse(DType::kF16, "1e400"), "none");
  EXPECT_EQ(parse(DType::kBF16, "3.4e38"), "none");
  EXPECT_EQ(parse(DType::kBF16, "1e200"), "none");
  EXPECT_EQ(parse(DType::kU8, "300"), "none");
  EXPECT_EQ(parse(DType::kU8, "-1"), "none");
  EXPECT_EQ(parse(DType::kI8, "128"), "none");
  EXPECT_EQ(parse(DType::kI32, "1.5"), "none");
  EXPECT_EQ(parse(DType::kI32, "1.0"), "none");
  EXPECT_EQ(parse(DType::kI32, "1e3"), "none");
  EXPECT_EQ(parse(DType::kU64, "18446744073709551616"), "none");
  EXPECT_EQ(parse(DType::kBool, "256"), "none");
}

TEST(MlxJsonValues, NumbersAreRoundedOnceToTheNearest) {
  EXPECT_EQ(parse(DType::kF16, "65519.99"), "7bff");
  EXPECT_EQ(parse(DType::kF16, "1.00048828125"), "3c00");  // a tie goes to even
  EXPECT_EQ(parse(DType::kF16, "1.00048828126"), "3c01");
  EXPECT_EQ(parse(DType::kF16, "2.98023223876953125e-8"), "0000");
  EXPECT_EQ(parse(DType::kF16, "2.980232238769532e-8"), "0001");
  EXPECT_EQ(parse(DType::kBF16, "1.00390625"), "3f80");
  EXPECT_EQ(parse(DType::kBF16, "1.003906250001"), "3f81");  // a tie if it were rounded to F32 first
  EXPECT_EQ(parse(DType::kBF16, "3.39e38"), "7f7f");
  EXPECT_EQ(parse(DType::kF32, "16777217"), "4b800000");
  EXPECT_EQ(parse(DType::kF32, "1.00000005960464477540"), "3f800001");
}

TEST(MlxJsonValues, NumbersTooSmallAreZero) {
  EXPECT_EQ(parse(DType::kF32, "1e-50"), "00000000");
  EXPECT_EQ(parse(DType::kF32, "-1e-50"), "80000000");
  EXPECT_EQ(parse(DType::kF64, "-0.00001e-400"), "8000000000000000");
  EXPECT_EQ(parse(DType::kF64, "1e-99999999999999999999"), "0000000000000000");
  EXPECT_EQ(parse(DType::kBF16, "1e-400"), "0000");
  EXPECT_EQ(parse(DType::kF32, "0e999"), "00000000");
  EXPECT_EQ(parse(DType::kF32, "1e-45"), "00000001");
}

TEST(MlxJsonValues, BoolsAreWordsOrNumbers) {
  EXPECT_EQ(parse(DType::kBool, "true"), "01");
  EXPECT_EQ(parse(DType::kBool, "false"), "00");
  EXPECT_EQ(parse(DType::kBool, "1"), "01");
}

TEST(MlxJsonValues, RunsStopBeforeSpecialEntries) {
  const auto run = [](std::string text, std::size_t most) {
    std::array<std::byte, 64> out{};
    const char* at = text.c_str();
    const std::size_t count = parse_run(DType::kF16, at, text.c_str() + text.size(), most, out.data());
    return std::pair(count, std::string(at));
  };
  EXPECT_EQ(run("1,2, 3,\n 4]", 9), std::pair(std::size_t{3}, std::string("4]")));
  EXPECT_EQ(run("1,2,3,", 2), std::pair(std::size_t{2}, std::string("3,")));
  EXPECT_EQ(run("1,\"NaN\",", 9), std::pair(std::size_t{1}, std::string("\"NaN\",")));
  EXPECT_EQ(run("NaN,1,", 9), std::pair(std::size_t{0}, std::string("NaN,1,")));
  EXPECT_EQ(run("1,70000,", 9), std::pair(std::size_t{1}, std::string("70000,")));
  EXPECT_EQ(run("1,1e999,", 9), std::pair(std::size_t{1}, std::string("1e999,")));
  EXPECT_EQ(run("12", 9), std::pair(std::size_t{0}, std::string("12")));
}

TEST(MlxJsonValues, Every16BitCodeRoundTrips) {
  std::vector<std::uint16_t> codes(std::size_t{1} << 16);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kI16, DType::kU16}) expect_round_trip(dtype, codes);
}

TEST(MlxJsonValues, ManyWiderCodesRoundTrip) {
  std::mt19937_64 random(1);  // NOLINT: the same codes each time
  std::vector<std::uint32_t> words;
  std::vector<std::uint64_t> longs;
  for (int i = 0; i < 100'000; ++i) {
    words.push_back(static_cast<std::uint32_t>(random()));
    longs.push_back(random());
  }
  for (std::uint32_t exponent = 0; exponent < 512; ++exponent) {  // the edges of every binade, both signs
    for (const std::uint32_t mantissa : {0U, 1U, 0x3fffffU, 0x400000U, 0x7fffffU}) words.push_back(exponent << 23 | mantissa);
  }
  for (std::uint64_t exponent = 0; exponent < 4096; ++exponent) {
    for (const std::uint64_t mantissa : {0UL, 1UL, (1UL << 51) - 1, 1UL << 51, (1UL << 52) - 1})
      longs.push_back(exponent << 52 | mantissa);
  }
  for (const DType dtype : {DType::kF32, DType::kI32, DType::kU32}) expect_round_trip(dtype, words);
  for (const DType dtype : {DType::kF64, DType::kI64, DType::kU64}) expect_round_trip(dtype, longs);
}

TEST(MlxJsonValues, EveryByteRoundTrips) {
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  for (const DType dtype : {DType::kI8, DType::kU8, DType::kBool}) expect_round_trip(dtype, bytes);
}

}  // namespace
}  // namespace ballast::mlx_json
