#include "format/npy/npy.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using ::testing::ElementsAre;

// A file of version 1.0 with this header and so many bytes of data.
std::string npy(std::string dict, std::size_t bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(dict.size());
  file += '\0';
  return file + dict + std::string(bytes, '\1');
}

Result<NpyArray> parse(const std::string& file) { return parse_npy(std::as_bytes(std::span(file))); }

TEST(Npy, HeaderHasTheBytesOfNumPy) {
  const std::string header = npy_header(DType::kF32, std::vector<std::uint64_t>{3});
  EXPECT_EQ(header.size(), 128U);
  EXPECT_TRUE(
      header.starts_with(std::string("\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", 64)));
  EXPECT_EQ(header.back(), '\n');
}

TEST(Npy, EveryVersionIsRead) {
  const std::string dict = "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }\n";
  std::string file = npy(dict, 24);
  for (const char version : {'\1', '\2', '\3'}) {
    std::string other = file;
    other[6] = version;
    if (version > '\1') other.insert(10, 2, '\0');
    const auto array = parse(other);
    ASSERT_TRUE(array) << array.error().message;
    EXPECT_EQ(array->dtype, DType::kI32);
    EXPECT_THAT(array->shape, ElementsAre(2, 3));
    EXPECT_EQ(array->bytes.size(), 24U);
  }
}

TEST(Npy, HeadersOfItsOwnAreRead) {
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kF16, DType::kI64, DType::kC64}) {
    const std::string file = npy_header(dtype, std::vector<std::uint64_t>{2, 1}) + std::string(2 * bits(dtype) / 8, '\0');
    const auto array = parse(file);
    ASSERT_TRUE(array) << array.error().message;
    EXPECT_EQ(array->dtype, dtype);
    EXPECT_THAT(array->shape, ElementsAre(2, 1));
  }
  const auto scalar = parse(npy_header(DType::kF32, {}) + std::string(4, '\0'));
  ASSERT_TRUE(scalar) << scalar.error().message;
  EXPECT_TRUE(scalar->shape.empty());
}

TEST(Npy, WhatIsNotUnderstoodIsRefused) {
  const auto dict = [](std::string_view descriptor, std::string_view order, std::string_view shape) {
    return fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': {}, }}", descriptor, order, shape);
  };
  EXPECT_TRUE(fails(parse("\x93NUMPY"), Errc::kCorrupt, "not an .npy file, or a truncated one"));
  EXPECT_TRUE(fails(parse(npy(dict("'>i4'", "False", "(1,)"), 4)), Errc::kUnsupported,
                    "dtype '>i4'; save it with a little-endian number type such as int32"));
  EXPECT_TRUE(fails(parse(npy(dict("'<i4'", "True", "(1,)"), 4)), Errc::kUnsupported,
                    "the array is in Fortran order; save it with numpy.ascontiguousarray()"));
  EXPECT_TRUE(fails(parse(npy(dict("'<i4'", "False", "(2,"), 4)), Errc::kCorrupt, "the header has no shape"));
  EXPECT_TRUE(
      fails(parse(npy(dict("'<i4'", "False", "(2,)"), 4)), Errc::kCorrupt, "shape [2] of I32 needs 8 bytes, the file has 4"));
  EXPECT_TRUE(fails(parse(npy(dict("'<i4'", "False", "(4294967296, 4294967296)"), 4)), Errc::kCorrupt,
                    "shape [4294967296, 4294967296] of I32 needs more than 2^64 bytes, the file has 4"));
  std::string other = npy(dict("'<i4'", "False", "(1,)"), 4);
  other[6] = 4;
  EXPECT_TRUE(fails(parse(other), Errc::kUnsupported, ".npy version 4, supported are 1 to 3"));
  other[6] = 1;
  other[8] = '\xff';
  EXPECT_TRUE(fails(parse(other), Errc::kCorrupt, "the header has 255 bytes, the file has 61 after its length"));
}

}  // namespace
}  // namespace ballast
