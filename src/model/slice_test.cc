#include "model/slice.h"

#include <limits>
#include <numeric>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Dims = std::vector<std::uint64_t>;

// Records every read.
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::string bytes) : bytes_(std::move(bytes)), memory_(open_memory(as_bytes(bytes_))) {}
  std::uint64_t size() const override { return memory_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    reads_.emplace_back(offset, out.size());
    return memory_->read_at(offset, out);
  }
  Result<std::span<const std::byte>> map() const override { return memory_->map(); }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

  const std::vector<std::pair<std::uint64_t, std::uint64_t>>& reads() const { return reads_; }

 private:
  std::string bytes_;
  std::unique_ptr<Source> memory_;
  mutable std::vector<std::pair<std::uint64_t, std::uint64_t>> reads_;
};

// The positions in Python's range(size)[start:stop:step], found one by one.
std::vector<std::uint64_t> positions(const Slice& slice, std::int64_t size) {
  const auto wrap = [&](std::int64_t bound) { return bound < 0 ? bound + size : bound; };
  std::vector<std::uint64_t> taken;
  if (slice.step > 0) {
    const std::int64_t start = slice.start ? std::max<std::int64_t>(wrap(*slice.start), 0) : 0;
    const std::int64_t stop = slice.stop ? wrap(*slice.stop) : size;
    for (std::int64_t i = start; i < std::min(stop, size); i += slice.step) taken.push_back(static_cast<std::uint64_t>(i));
  } else {
    const std::int64_t start = slice.start ? std::min(wrap(*slice.start), size - 1) : size - 1;
    const std::int64_t stop = slice.stop ? wrap(*slice.stop) : -1;
    for (std::int64_t i = start; i > std::max<std::int64_t>(stop, -1); i += slice.step)
      taken.push_back(static_cast<std::uint64_t>(i));
  }
  return taken;
}

struct Expected {
  Dims shape;
  std::vector<std::uint64_t> elements;  // flat positions in the tensor, in output order
};

Expected slice_by_index(const Dims& shape, std::span<const Slice> slices) {
  Expected expected{.shape = {}, .elements = {0}};
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const auto taken = positions(axis < slices.size() ? slices[axis] : Slice{}, static_cast<std::int64_t>(shape[axis]));
    std::vector<std::uint64_t> next;
    for (const std::uint64_t outer : expected.elements) {
      for (const std::uint64_t inner : taken) next.push_back(outer * shape[axis] + inner);
    }
    expected.elements = std::move(next);
    expected.shape.push_back(taken.size());
  }
  return expected;
}

// All slices of a dimension of `size`, with bounds a little past both ends.
std::vector<Slice> all_slices(std::int64_t size, std::int64_t past, std::int64_t longest_step) {
  std::vector<std::optional<std::int64_t>> bounds{std::nullopt};
  for (std::int64_t bound = -size - past; bound <= size + past; ++bound) bounds.emplace_back(bound);
  std::vector<Slice> slices;
  for (std::int64_t step = -longest_step; step <= longest_step; ++step) {
    if (step == 0) continue;
    for (const auto& start : bounds) {
      for (const auto& stop : bounds) slices.push_back({.start = start, .stop = stop, .step = step});
    }
  }
  return slices;
}

std::string counted_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  std::iota(bytes.begin(), bytes.end(), '\1');
  return bytes;
}

// Compares a slice of a byte-sized dtype with one made index by index. The tensor starts at byte 3 of its source.
void expect_same_as_by_index(const Dims& shape, DType dtype, std::span<const Slice> slices) {
  const std::size_t width = bits(dtype) / 8;
  const std::uint64_t elements = std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies{});
  const std::string bytes = "abc" + counted_bytes(elements * width);
  const Expected expected = slice_by_index(shape, slices);
  std::string expected_bytes;
  for (const std::uint64_t element : expected.elements) expected_bytes += bytes.substr(3 + element * width, width);

  const auto plan = plan_slice(shape, dtype, slices);
  ASSERT_TRUE(plan) << plan.error().message;
  ASSERT_EQ(plan->shape, expected.shape);
  ASSERT_EQ(plan->bytes, expected_bytes.size());
  std::string out(plan->bytes, '\0');
  const auto read = read_slice(*open_memory(as_bytes(bytes)), 3, *plan, std::as_writable_bytes(std::span(out)));
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(out, expected_bytes);
}

TEST(Slice, OneDimensionMatchesPythonForAllBoundsAndSteps) {
  for (std::int64_t size = 0; size <= 6; ++size) {
    for (const Slice& slice : all_slices(size, 2, 4)) {
      for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kC64}) {
        expect_same_as_by_index({static_cast<std::uint64_t>(size)}, dtype, {&slice, 1});
      }
    }
  }
}

TEST(Slice, TwoDimensionsMatchPythonForAllBoundsAndSteps) {
  const auto rows = all_slices(3, 1, 3);
  const auto columns = all_slices(2, 1, 2);
  for (const Slice& row : rows) {
    for (const Slice& column : columns) {
      const std::array slices{row, column};
      expect_same_as_by_index({3, 2}, DType::kI16, slices);
    }
  }
}

// One slice of every kind.
const std::array<Slice, 8> kSomeSlices{{
    {},
    {.start = 1},
    {.stop = -1},
    {.start = 1, .stop = 2},
    {.start = 2, .stop = 1},
    {.step = -1},
    {.step = 2},
    {.start = -1, .step = -2},
}};

TEST(Slice, ThreeDimensionsMatchPython) {
  for (const Dims& shape : {Dims{2, 3, 4}, Dims{1, 4, 1}, Dims{3, 1, 2}, Dims{2, 0, 3}, Dims{4, 3, 2}}) {
    for (const Slice& a : kSomeSlices) {
      for (const Slice& b : kSomeSlices) {
        for (const Slice& c : kSomeSlices) {
          const std::array slices{a, b, c};
          for (std::size_t given = 0; given <= 3; ++given) {
            expect_same_as_by_index(shape, DType::kF32, std::span(slices).first(given));
          }
        }
      }
    }
  }
}

TEST(Slice, ScalarIsReadWhole) { expect_same_as_by_index({}, DType::kF64, {}); }

// Element i of an F4 tensor is nibble i, the low one of each byte first.
unsigned nibble(std::string_view bytes, std::uint64_t i) {
  const auto byte = static_cast<unsigned char>(bytes[i / 2]);
  return i % 2 == 0 ? byte & 0xfU : byte >> 4U;
}

// Whether the elements, in this order, can be copied from a packed tensor byte by byte.
bool comes_in_whole_bytes(std::span<const std::uint64_t> elements) {
  if (elements.size() % 2 != 0) return false;
  for (std::size_t i = 0; i < elements.size(); i += 2) {
    if (elements[i] % 2 != 0 || elements[i + 1] != elements[i] + 1) return false;
  }
  return true;
}

// Compares a slice of an F4 tensor with one made nibble by nibble. Returns false if it was refused.
bool expect_same_as_by_nibble(const Dims& shape, std::span<const Slice> slices) {
  const std::string bytes("\x10\x32\x54\x76\x98\xba\xdc\xfe\x0f\x2e\x4d\x6c", 12);
  const Expected expected = slice_by_index(shape, slices);
  const auto plan = plan_slice(shape, DType::kF4, slices);
  EXPECT_EQ(plan.has_value(), comes_in_whole_bytes(expected.elements));
  if (!plan) {
    EXPECT_EQ(plan.error().code, Errc::kUnsupported);
    return false;
  }
  EXPECT_EQ(plan->shape, expected.shape);
  std::string out(plan->bytes, '\0');
  EXPECT_TRUE(read_slice(*open_memory(as_bytes(bytes)), 0, *plan, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out.size() * 2, expected.elements.size());
  for (std::size_t i = 0; i < expected.elements.size(); ++i) EXPECT_EQ(nibble(out, i), nibble(bytes, expected.elements[i]));
  return true;
}

TEST(Slice, F4IsSlicedOnlyInWholeBytes) {
  int taken = 0;
  int refused = 0;
  const auto count = [&](bool was_taken) { ++(was_taken ? taken : refused); };
  for (const Slice& slice : all_slices(6, 1, 3)) count(expect_same_as_by_nibble({6}, {&slice, 1}));
  for (const Dims& shape : {Dims{3, 4}, Dims{4, 3}, Dims{2, 2, 3}, Dims{3, 1, 2}, Dims{4, 2, 1}}) {
    for (const Slice& inner : all_slices(static_cast<std::int64_t>(shape[1]), 1, 2)) {
      for (const Slice& outer : kSomeSlices) count(expect_same_as_by_nibble(shape, std::array{outer, inner}));
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(Slice, PackedValuesOffByteBoundariesAreUnsupported) {
  const auto plan = [](DType dtype, const Slice& slice) { return plan_slice(Dims{8}, dtype, {&slice, 1}); };
  EXPECT_TRUE(fails(plan(DType::kF4, {.start = 1}), Errc::kUnsupported,
                    "slice of F4 does not start and end at byte boundaries: runs of 28 bits from bit 4"));
  EXPECT_TRUE(fails(plan(DType::kF4, {.step = 2}), Errc::kUnsupported,
                    "slice of F4 does not start and end at byte boundaries: runs of 4 bits from bit 0"));
  EXPECT_TRUE(fails(plan(DType::kF6E2M3, {.start = 1, .stop = 5}), Errc::kUnsupported,
                    "slice of F6_E2M3 does not start and end at byte boundaries: runs of 24 bits from bit 6"));
  const auto halves = plan(DType::kF6E2M3, {.start = 4});
  ASSERT_TRUE(halves) << halves.error().message;
  EXPECT_EQ(halves->first, 3);
  EXPECT_EQ(halves->bytes, 3);
}

TEST(Slice, ExtremeBoundsAndStepsAreClamped) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  const auto count = [](const Slice& slice) { return plan_slice(Dims{5}, DType::kU8, {&slice, 1})->shape[0]; };
  EXPECT_EQ(count({.start = kMin, .stop = kMax}), 5);
  EXPECT_EQ(count({.start = kMax, .stop = kMin}), 0);
  EXPECT_EQ(count({.start = kMax, .stop = kMin, .step = -1}), 5);
  EXPECT_EQ(count({.step = kMax}), 1);
  EXPECT_EQ(count({.step = kMin}), 1);
  EXPECT_EQ(count({.start = kMax, .stop = kMin, .step = kMin}), 1);
}

TEST(Slice, MoreSlicesThanDimensionsAreRefused) {
  const std::array<Slice, 3> slices{};
  EXPECT_TRUE(
      fails(plan_slice(Dims{2, 2}, DType::kU8, slices), Errc::kInvalidArgument, "3 slices, but shape [2, 2] has 2 dimensions"));
}

TEST(Slice, StepOfZeroIsRefused) {
  const std::array<Slice, 2> slices{Slice{}, Slice{.step = 0}};
  EXPECT_TRUE(
      fails(plan_slice(Dims{2, 2}, DType::kU8, slices), Errc::kInvalidArgument, "dimension 1: the step of a slice cannot be 0"));
}

TEST(Slice, HugeDimensionsOfEmptyTensorsKeepTheirSize) {
  const Dims shape{0, std::uint64_t{1} << 63, 4};
  const auto plan = plan_slice(shape, DType::kU8, {});
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->shape, shape);
  EXPECT_EQ(plan->bytes, 0);
}

TEST(Slice, HugeDimensionsCannotBeSliced) {
  const std::array<Slice, 2> slices{Slice{}, Slice{.step = -1}};
  EXPECT_TRUE(fails(plan_slice(Dims{0, std::uint64_t{1} << 63}, DType::kU8, slices), Errc::kUnsupported,
                    "dimension 1 of 9223372036854775808 is too large to slice"));
}

TEST(Slice, TensorsTooLargeForAFileAreRefused) {
  EXPECT_TRUE(fails(plan_slice(Dims{std::uint64_t{1} << 60}, DType::kU64, {}), Errc::kUnsupported,
                    "shape [1152921504606846976] of U64 is too large to slice"));
}

TEST(SliceReads, WholeTensorIsOneRead) {
  const CountingSource source(counted_bytes(100 * 40));
  const auto plan = plan_slice(Dims{100, 10}, DType::kF32, {});
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(source, 0, *plan, out));
  EXPECT_THAT(source.reads(), ElementsAre(Pair(0, 4000)));
}

TEST(SliceReads, RowsAreOneReadOfTheirBytes) {
  const CountingSource source(counted_bytes(8 + 100 * 40));
  const std::array slices{Slice{.start = 10, .stop = 13}};
  const auto plan = plan_slice(Dims{100, 10}, DType::kF32, slices);
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(source, 8, *plan, out));
  EXPECT_THAT(source.reads(), ElementsAre(Pair(408, 120)));
}

TEST(SliceReads, DistantRunsAreReadSeparately) {
  const CountingSource source(counted_bytes(std::size_t{4} * 100'000));
  const std::array slices{Slice{}, Slice{.start = 7, .stop = 9}};
  const auto plan = plan_slice(Dims{4, 100'000}, DType::kU8, slices);
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(source, 0, *plan, out));
  EXPECT_THAT(source.reads(), ElementsAre(Pair(7, 2), Pair(100'007, 2), Pair(200'007, 2), Pair(300'007, 2)));
}

TEST(SliceReads, CloseRunsShareARead) {
  const CountingSource source(counted_bytes(1000));
  const std::array slices{Slice{.start = 900, .stop = 100, .step = -100}};
  const auto plan = plan_slice(Dims{1000}, DType::kU8, slices);
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(source, 0, *plan, out));
  EXPECT_THAT(source.reads(), ElementsAre(Pair(200, 701)));
  EXPECT_EQ(to_text(out).front(), static_cast<char>(901));
}

TEST(SliceReads, SharedReadsStayBelowAMebibyte) {
  const CountingSource source(std::string(std::size_t{8} << 20, 'x'));
  const std::array slices{Slice{.step = 1024}};
  const auto plan = plan_slice(Dims{8 << 20}, DType::kU8, slices);
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(source, 0, *plan, out));
  EXPECT_GE(source.reads().size(), 8);
  EXPECT_LE(source.reads().size(), 9);
  for (const auto& [offset, length] : source.reads()) EXPECT_LE(length, std::uint64_t{1} << 20);
}

TEST(SliceReads, EmptySliceReadsNothing) {
  const CountingSource source(counted_bytes(100));
  const std::array slices{Slice{.start = 5, .stop = 5}};
  const auto plan = plan_slice(Dims{100}, DType::kU8, slices);
  ASSERT_TRUE(plan);
  ASSERT_TRUE(read_slice(source, 0, *plan, {}));
  EXPECT_THAT(source.reads(), IsEmpty());
}

TEST(SliceReads, ReturnsErrors) {
  const CountingSource source(counted_bytes(10));
  const auto far = plan_slice(Dims{2, 100'000}, DType::kU8, std::array{Slice{}, Slice{.stop = 1}});
  ASSERT_TRUE(far);
  std::vector<std::byte> out(2);
  EXPECT_TRUE(fails(read_slice(source, 0, *far, out), Errc::kIo, "cannot read 1 bytes at offset 100000: the size is 10 bytes"));
  const auto near = plan_slice(Dims{2, 100}, DType::kU8, std::array{Slice{}, Slice{.stop = 1}});
  ASSERT_TRUE(near);
  EXPECT_TRUE(fails(read_slice(source, 0, *near, out), Errc::kIo, "cannot read 101 bytes at offset 0: the size is 10 bytes"));
}

TEST(SliceReads, ManyDistantRunsAreReadByThreads) {
  const std::string bytes = counted_bytes(std::size_t{200} * 50'001);
  const auto source = open_memory(as_bytes(bytes));
  const auto plan = plan_slice(Dims{200, 50'001}, DType::kU8, std::array{Slice{.step = -1}, Slice{.start = 11, .stop = 18}});
  ASSERT_TRUE(plan);
  std::vector<std::byte> out(plan->bytes);
  ASSERT_TRUE(read_slice(*source, 0, *plan, out));
  std::string expected;
  for (std::size_t row = 200; row-- > 0;) expected += bytes.substr(row * 50'001 + 11, 7);
  EXPECT_EQ(to_text(out), expected);

  const auto cut = open_memory(as_bytes(bytes).first(std::size_t{199} * 50'001));
  EXPECT_TRUE(
      fails(read_slice(*cut, 0, *plan, out), Errc::kIo, "cannot read 7 bytes at offset 9950210: the size is 9950199 bytes"));
}

TEST(ParseSlices, ReadsPythonsNotation) {
  const auto slices = parse_slices("0:10, :, ::2,-3 : ,:-1:-1");
  ASSERT_TRUE(slices) << slices.error().message;
  ASSERT_EQ(slices->size(), 5);
  const auto is = [&](std::size_t i, std::optional<std::int64_t> start, std::optional<std::int64_t> stop, std::int64_t step) {
    const Slice& slice = (*slices)[i];
    return slice.start == start && slice.stop == stop && slice.step == step;
  };
  EXPECT_TRUE(is(0, 0, 10, 1));
  EXPECT_TRUE(is(1, std::nullopt, std::nullopt, 1));
  EXPECT_TRUE(is(2, std::nullopt, std::nullopt, 2));
  EXPECT_TRUE(is(3, -3, std::nullopt, 1));
  EXPECT_TRUE(is(4, std::nullopt, -1, -1));
}

TEST(ParseSlices, OtherFormsAreRefused) {
  EXPECT_TRUE(fails(parse_slices(""), Errc::kInvalidArgument, "'' is not a slice; expected start:stop or start:stop:step"));
  EXPECT_TRUE(fails(parse_slices("3"), Errc::kInvalidArgument, "'3' is not a slice; expected start:stop or start:stop:step"));
  EXPECT_TRUE(fails(parse_slices(":,"), Errc::kInvalidArgument, "'' is not a slice; expected start:stop or start:stop:step"));
  EXPECT_TRUE(
      fails(parse_slices("1:2:3:4"), Errc::kInvalidArgument, "'1:2:3:4' is not a slice; expected start:stop or start:stop:step"));
}

TEST(ParseSlices, BoundsMustBeWholeNumbers) {
  EXPECT_TRUE(fails(parse_slices("a:"), Errc::kInvalidArgument, "'a' is not a whole number"));
  EXPECT_TRUE(fails(parse_slices(":1.5"), Errc::kInvalidArgument, "'1.5' is not a whole number"));
  EXPECT_TRUE(fails(parse_slices("::\x1b"), Errc::kInvalidArgument, R"('\x1b' is not a whole number)"));
  EXPECT_TRUE(fails(parse_slices("9223372036854775808:"), Errc::kInvalidArgument, "'9223372036854775808' is not a whole number"));
}

}  // namespace
}  // namespace ballast
