// Compares every pair of dtypes with the reference, on every instruction set of this machine.

#include "convert/kernels.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <ballast/convert.h>

#include "convert/reference.h"
#include "tests/support/instruction_sets.h"

namespace ballast {
namespace {

using test::instruction_sets;
using test::OnlyInstructionSet;
using Bytes = std::vector<std::byte>;

std::vector<DType> convertible_dtypes() {
  std::vector<DType> dtypes;
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (can_convert(dtype, DType::kF32)) dtypes.push_back(dtype);
  }
  return dtypes;
}

template <class T>
void append(Bytes& bytes, T value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof(value));
}

// Both signs, every exponent, and the mantissas at which the result of some rounding changes.
template <class Code>
Bytes edge_floats(int mantissa_bits) {
  const Code all_ones = (Code{1} << mantissa_bits) - 1;
  std::vector<Code> mantissas{0, all_ones};
  for (int bit = 0; bit < mantissa_bits; ++bit) {
    const Code one = Code{1} << bit;
    for (const Code mantissa :
         {one - 1, one, one + 1, one | one << 1, (one | one << 1) - 1, (one | one << 1) + 1, all_ones - one}) {
      mantissas.push_back(mantissa & all_ones);
    }
  }
  Bytes bytes;
  for (Code top = 0; top < Code{1} << (sizeof(Code) * 8 - static_cast<unsigned>(mantissa_bits)); ++top) {
    for (const Code mantissa : mantissas) append(bytes, static_cast<Code>(top << mantissa_bits | mantissa));
  }
  return bytes;
}

// Powers of two and their neighbors, of both signs.
template <class Code>
Bytes edge_integers() {
  Bytes bytes;
  for (int high = 0; high < std::numeric_limits<Code>::digits; ++high) {
    for (int low = 0; low <= high; ++low) {
      for (const Code nudge : {Code{0}, Code{1}, static_cast<Code>(-1)}) {
        const Code value = static_cast<Code>((Code{1} << high | Code{1} << low) + nudge);
        append(bytes, value);
        append(bytes, static_cast<Code>(-value));
      }
    }
  }
  return bytes;
}

template <class Code>
Bytes every_code() {
  Bytes bytes;
  for (std::uint32_t code = 0; code <= std::numeric_limits<Code>::max(); ++code) append(bytes, static_cast<Code>(code));
  return bytes;
}

void append_random(Bytes& bytes, std::size_t count) {
  std::mt19937_64 random(20240607);
  for (std::size_t i = 0; i < count; ++i) append(bytes, random() >> (i % 4 == 0 ? random() % 64 : 0));
}

// All values of dtypes of at most 16 bits; edge cases of the others.
Bytes samples(DType dtype) {
  if (bits(dtype) <= 8) return every_code<std::uint8_t>();
  if (bits(dtype) == 16) return every_code<std::uint16_t>();
  Bytes bytes;
  if (dtype == DType::kF32) {
    bytes = edge_floats<std::uint32_t>(23);
  } else if (dtype == DType::kF64) {
    bytes = edge_floats<std::uint64_t>(52);
  } else if (bits(dtype) == 32) {
    bytes = edge_integers<std::uint32_t>();
  } else {
    bytes = edge_integers<std::uint64_t>();
  }
  append_random(bytes, 20'000);
  return bytes;
}

std::size_t first_difference(const Bytes& a, const Bytes& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

class EveryPair : public testing::TestWithParam<DType> {};

TEST_P(EveryPair, AgreesWithReferenceOnEveryInstructionSet) {
  const DType from = GetParam();
  const Bytes in = samples(from);
  for (const DType to : convertible_dtypes()) {
    Bytes expected(in.size() * bits(to) / bits(from));
    const ConversionLoss loss = convert_by_reference(from, in, to, expected);
    for (const std::int64_t target : instruction_sets()) {
      const OnlyInstructionSet only(target);
      Bytes out(expected.size(), std::byte{0xa5});
      const auto result = convert_values(from, in, to, out);
      ASSERT_TRUE(result) << result.error().message;
      ASSERT_EQ(out, expected) << name(from) << " to " << name(to) << " on " << hwy::TargetName(target) << ": value "
                               << first_difference(out, expected) * 8 / bits(to);
      ASSERT_EQ(result->count, loss.count) << name(from) << " to " << name(to) << " on " << hwy::TargetName(target);
      ASSERT_EQ(result->first, loss.first) << name(from) << " to " << name(to) << " on " << hwy::TargetName(target);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Convert, EveryPair, testing::ValuesIn(convertible_dtypes()),
                         [](const auto& test) { return std::string(name(test.param)); });

// Frequent pairs, pairs that convert through F32, and packed dtypes.
constexpr std::pair<DType, DType> kPairs[] = {
    {DType::kBF16, DType::kF32},   {DType::kF16, DType::kF32},    {DType::kF32, DType::kBF16},    {DType::kF32, DType::kF16},
    {DType::kF8E4M3, DType::kF32}, {DType::kF32, DType::kF8E5M2}, {DType::kF8E5M2, DType::kBF16}, {DType::kBF16, DType::kF16},
    {DType::kF4, DType::kF32},     {DType::kF32, DType::kF4},     {DType::kF64, DType::kF8E4M3},  {DType::kI16, DType::kF4},
};

TEST(Kernels, EveryLengthAtEveryAlignment) {
  const Bytes source = samples(DType::kF32);
  for (const auto& [from, to] : kPairs) {
    const std::size_t step = bits(from) == 4 || bits(to) == 4 ? 2 : 1;
    for (std::size_t count = 0; count <= 200; count += step) {
      const std::size_t offset = count % 67;
      const std::size_t in_size = count * bits(from) / 8;
      const std::size_t out_size = count * bits(to) / 8;
      const Bytes in(source.begin() + 4096, source.begin() + static_cast<std::ptrdiff_t>(4096 + offset + in_size));
      Bytes expected(out_size);
      convert_by_reference(from, std::span(in).subspan(offset), to, expected);
      for (const std::int64_t target : instruction_sets()) {
        const OnlyInstructionSet only(target);
        Bytes out(out_size + 2 * 67, std::byte{0xa5});
        Bytes framed = out;
        std::ranges::copy(expected, framed.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_TRUE(convert_values(from, std::span(in).subspan(offset), to, std::span(out).subspan(offset, out_size)));
        ASSERT_EQ(out, framed) << count << " values of " << name(from) << " to " << name(to) << " on " << hwy::TargetName(target);
      }
    }
  }
}

// Starts at every offset from a cache line, also where no value starts at one. Some blocks contain NaN.
TEST(Kernels, StreamingStoresAtEveryAlignment) {
  const Bytes source = samples(DType::kF32);
  constexpr std::size_t kCount = 1000;
  const auto check = [&](DType from, DType to, auto&& kernel) {
    const Bytes in(source.end() - static_cast<std::ptrdiff_t>(kCount * bits(from) / 8), source.end());
    Bytes expected(kCount * bits(to) / 8);
    convert_by_reference(from, in, to, expected);
    for (const std::int64_t target : instruction_sets()) {
      const OnlyInstructionSet only(target);
      for (std::size_t offset = 0; offset < 64; ++offset) {
        Bytes out(expected.size() + 128, std::byte{0xa5});
        Bytes framed = out;
        std::ranges::copy(expected, framed.begin() + static_cast<std::ptrdiff_t>(offset));
        kernel(in.data(), kCount, out.data() + offset, Stores::kStreaming);
        ASSERT_EQ(out, framed) << name(from) << " to " << name(to) << " at " << offset << " on " << hwy::TargetName(target);
      }
    }
  };
  using enum DType;
  for (const DType dtype : {kF4, kF8E5M2, kF8E4M3, kF8E8M0, kF8E4M3Fnuz, kF8E5M2Fnuz, kF16, kBF16}) {
    check(dtype, kF32, [dtype](auto... arguments) { to_f32(dtype, arguments...); });
    check(kF32, dtype, [dtype](auto... arguments) { from_f32(dtype, arguments...); });
  }
}

TEST(KernelsDeathTest, DtypesWithoutAKernelAbort) {
  Bytes in(64);
  Bytes out(64);
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF6E2M3, DType::kI8, DType::kC64}) {
    const std::string message = "no kernel converts between " + std::string(name(dtype)) + " and F32";
    EXPECT_DEATH(from_f32(dtype, in.data(), 4, out.data(), Stores::kOrdinary), message);
    EXPECT_DEATH(to_f32(dtype, in.data(), 4, out.data(), Stores::kOrdinary), message);
  }
}

TEST(Kernels, LargeOutputIsStreamed) {
  const Bytes block = samples(DType::kF32);
  Bytes in;
  while (in.size() < (std::size_t{17} << 20)) in.insert(in.end(), block.begin(), block.end());
  for (const DType to : {DType::kBF16, DType::kF16}) {
    const std::size_t count = in.size() / 4 - 3;
    Bytes expected(count * 2);
    convert_by_reference(DType::kF32, std::span(in).subspan(12), to, expected);
    Bytes out(count * 2 + 10);
    ASSERT_TRUE(convert_values(DType::kF32, std::span(in).subspan(12), to, std::span(out).subspan(10)));
    EXPECT_TRUE(std::ranges::equal(std::span(out).subspan(10), expected)) << name(to);
  }
}

}  // namespace
}  // namespace ballast
