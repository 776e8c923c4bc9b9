#include "quantize/packing.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::to_text;

constexpr unsigned kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr std::byte kUntouched{0xa5};

std::vector<std::uint8_t> random_codes(unsigned bits, std::size_t count) {
  std::mt19937 random(bits);
  std::vector<std::uint8_t> codes(count);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random() % (1U << bits));
  return codes;
}

// Bit by bit.
std::vector<std::byte> pack_slowly(unsigned bits, std::span<const std::uint8_t> codes) {
  std::vector<std::byte> packed((codes.size() * bits + 7) / 8);
  for (std::size_t i = 0; i < codes.size() * bits; ++i) {
    const unsigned bit = codes[i / bits] >> i % bits & 1U;
    packed[i / 8] |= static_cast<std::byte>(bit << i % 8);
  }
  return packed;
}

std::string pack(unsigned bits, const std::vector<std::uint8_t>& codes) {
  std::vector<std::byte> packed(packed_size(bits, codes.size()), kUntouched);
  pack_codes(bits, codes, packed.data());
  return to_text(packed);
}

TEST(Packing, LowBitsComeFirst) {
  EXPECT_EQ(pack(2, {0, 1, 2, 3}), "\xe4");
  EXPECT_EQ(pack(2, {3, 0, 0, 0, 0, 0, 0, 2}), std::string("\x03\x80", 2));
  EXPECT_EQ(pack(3, {0, 1, 2, 3, 4, 5, 6, 7}), "\x88\xc6\xfa");
  EXPECT_EQ(pack(4, {1, 2, 3, 4, 15, 0, 10, 5}), "\x21\x43\x0f\x5a");
  EXPECT_EQ(pack(5, {1, 2, 4, 8, 16, 31, 0, 21}), std::string("\x41\x10\x04\x3f\xa8", 5));
  EXPECT_EQ(pack(6, {1, 2, 4, 8, 63, 32, 0, 42}), std::string("\x81\x40\x20\x3f\x08\xa8", 6));
  EXPECT_EQ(pack(8, {1, 128, 255}), "\x01\x80\xff");
}

TEST(Packing, LastByteIsFilledWithZeros) {
  EXPECT_EQ(pack(2, {3}), "\x03");
  EXPECT_EQ(pack(3, {7, 7, 7}), std::string("\xff\x01", 2));
  EXPECT_EQ(pack(5, {31}), "\x1f");
  EXPECT_EQ(pack(6, {63, 63}), "\xff\x0f");
}

TEST(Packing, EveryCountIsPackedAsBitByBitAndComesBack) {
  for (const unsigned bits : kWidths) {
    for (std::size_t count = 0; count <= 70; ++count) {
      const auto codes = random_codes(bits, count);
      const auto expected = pack_slowly(bits, codes);
      std::vector<std::byte> packed(expected.size() + 8, kUntouched);
      pack_codes(bits, codes, packed.data());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), packed.begin())) << count << " codes of " << bits << " bits";
      EXPECT_EQ(std::ranges::count(packed.end() - 8, packed.end(), kUntouched), 8) << count << " codes of " << bits << " bits";

      const std::vector<std::byte> exact(packed.begin(), packed.end() - 8);  // so that a sanitizer sees a read past them
      std::vector<std::uint8_t> unpacked(count + 8, 0xa5);
      unpack_codes(bits, exact.data(), std::span(unpacked).first(count));
      EXPECT_TRUE(std::equal(codes.begin(), codes.end(), unpacked.begin())) << count << " codes of " << bits << " bits";
      EXPECT_EQ(std::ranges::count(unpacked.end() - 8, unpacked.end(), 0xa5), 8) << count << " codes of " << bits << " bits";
    }
  }
}

TEST(Packing, WhatIsOverOfTheLastByteIsNotRead) {
  std::vector<std::uint8_t> codes(3);
  unpack_codes(3, test::as_bytes("\xff\xff").data(), codes);
  EXPECT_THAT(codes, testing::ElementsAre(7, 7, 7));
}

}  // namespace
}  // namespace ballast
