#include "format/mlx_json/values_source.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>

#include "base/parallel.h"
#include "format/mlx_json/values.h"
#include "tests/support/files.h"

namespace ballast::mlx_json {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;
using test::to_text;

// `text` must outlive the source.
std::unique_ptr<Source> open(const std::string& text, std::size_t piece = TextWindow::kPiece) {
  auto source = open_memory(as_bytes(text));
  auto document = read_document(*source);
  if (!document) throw std::runtime_error(document.error().message);
  return open_values(std::move(source), std::move(*document), piece);
}
std::unique_ptr<Source> open(std::string&& text, std::size_t piece = TextWindow::kPiece) = delete;

Result<std::string> read(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '?');
  if (auto read = source.read_at(offset, std::as_writable_bytes(std::span(bytes))); !read) return std::unexpected(read.error());
  return bytes;
}

std::string with_data(std::string_view dtype, std::string_view data, std::size_t count) {
  return fmt::format(R"({{"weights":{{"t":{{"shape":[{}],"dtype":"{}","data":{}}}}}}})", count, dtype, data);
}

TEST(MlxJsonValuesSource, ReadsEveryRangeOfEveryTensor) {
  const std::string text =
      R"({"weights":{"a":{"shape":[3],"dtype":"float32","data":[1.5, "NaN" ,-Infinity]},"e":{"shape":[0],"dtype":"int8","data":[]},)"
      R"("b":{"data":[ -2,)"
      "\n\n"
      R"(300 ],"shape":[2],"dtype":"int16"},"c":{"shape":[],"dtype":"bool","data":[true]},)"
      R"("d":{"shape":[2],"dtype":"float64","data":[1e-3,"nan:fff8000000000001"]}}})";
  const std::string expected = raw<std::uint32_t>({0x3fc00000, 0x7fc00000, 0xff800000}) + raw<std::int16_t>({-2, 300}) + "\1" +
                               raw<std::uint64_t>({0x3f50624dd2f1a9fc, 0xfff8000000000001});
  for (const std::size_t piece : {1, 2, 3, 5, 8, 13, 1 << 20}) {
    const auto source = open(text, piece);
    ASSERT_EQ(source->size(), expected.size());
    for (std::size_t begin = 0; begin <= expected.size(); ++begin) {
      for (std::size_t end = begin; end <= expected.size(); ++end) {
        const auto bytes = read(*source, begin, end - begin);
        ASSERT_TRUE(bytes) << bytes.error().message;
        ASSERT_EQ(*bytes, expected.substr(begin, end - begin)) << begin << " to " << end << " in pieces of " << piece;
      }
    }
  }
}

TEST(MlxJsonValuesSource, ReadsInTheMiddleStartAtACheckpoint) {
  std::vector<float> values(3 * kStride + 100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.37F;
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  std::string data = "[";
  append_values(DType::kF32, as_bytes(bytes), data);
  const std::string text = with_data("float32", data + "]", values.size());
  for (const std::size_t piece : {std::size_t{1000}, TextWindow::kPiece}) {
    const auto source = open(text, piece);
    for (const std::uint64_t first : {std::uint64_t{0}, kStride - 1, kStride, 2 * kStride + 7, 3 * kStride, 3 * kStride + 99}) {
      for (const std::uint64_t count : {std::uint64_t{1}, kStride, kStride + 1, 3 * kStride}) {
        const std::uint64_t taken = std::min<std::uint64_t>(count, values.size() - first);
        const auto part = read(*source, first * 4 + 1, taken * 4 - 2);
        ASSERT_TRUE(part) << part.error().message;
        ASSERT_TRUE(*part == bytes.substr(first * 4 + 1, taken * 4 - 2)) << first << " " << count;
      }
    }
  }
}

TEST(MlxJsonValuesSource, IsThreadSafe) {
  std::string data = "[0";
  for (int i = 1; i < 40'000; ++i) data += fmt::format(",{}", i);
  const std::string text = with_data("int32", data + "]", 40'000);
  const auto source = open(text, 4096);
  std::vector<std::int32_t> values(40'000);
  parallel_for(40, 4, [&](unsigned, std::size_t block) {
    return source->read_at(block * 4000, std::as_writable_bytes(std::span(values).subspan(block * 1000, 1000))).has_value();
  });
  for (std::int32_t i = 0; i < 40'000; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i);
}

TEST(MlxJsonValuesSource, ErrorsForValuesThatDoNotFitHaveTheElementAndTheByte) {
  const auto refuses = [](std::string_view dtype, std::string_view data, std::string_view message) {
    const std::string text = with_data(dtype, data, 3);
    for (const std::size_t piece : {1, 4, 1 << 20}) {
      const auto source = open(text, piece);
      const auto refused = fails(read(*source, 0, source->size()), Errc::kCorrupt, message);
      if (!refused) return refused;
    }
    return testing::AssertionSuccess();
  };
  EXPECT_TRUE(refuses("float32", "[1,2, 1e39]", "element 2: '1e39' at byte 60 does not fit float32"));
  EXPECT_TRUE(refuses("float16", "[1,70000,2]", "element 1: '70000' at byte 57 does not fit float16"));
  EXPECT_TRUE(refuses("uint8", "[1,300,2]", "element 1: '300' at byte 55 does not fit uint8"));
  EXPECT_TRUE(refuses("int32", "[1.5,1,2]", "element 0: '1.5' at byte 53 does not fit int32"));
  EXPECT_TRUE(refuses("int32", "[1,NaN,2]", "element 1: 'NaN' at byte 55 does not fit int32"));
  EXPECT_TRUE(refuses("float32", "[1,2,true]", "element 2: 'true' at byte 59 does not fit float32"));
  EXPECT_TRUE(refuses("float16", R"([1,2,"nan:7fc00001"])", R"(element 2: '\"nan:7fc00001\"' at byte 59 does not fit float16)"));
}

TEST(MlxJsonValuesSource, ReadsValuesBeforeOneThatDoesNotFit) {
  const std::string text = with_data("int8", "[1,2,300]", 3);
  const auto source = open(text);
  EXPECT_EQ(read(*source, 0, 2), "\1\2");
}

TEST(MlxJsonValuesSource, RangesPastTheEndAreRefused) {
  const std::string text = with_data("int8", "[1,2,3]", 3);
  const auto source = open(text);
  EXPECT_TRUE(fails(read(*source, 2, 2), Errc::kIo, "cannot read 2 bytes at offset 2: the size is 3 bytes"));
  EXPECT_TRUE(fails(read(*source, 4, 0), Errc::kIo, "cannot read 0 bytes at offset 4: the size is 3 bytes"));
}

TEST(MlxJsonValuesSource, CannotBeMapped) {
  const std::string text = with_data("int8", "[1,2,3]", 3);
  const auto source = open(text);
  EXPECT_TRUE(fails(source->map(), Errc::kUnsupported, "view() is not available for MLX JSON, which stores text; use read()"));
  EXPECT_TRUE(source->release(0, 3));
}

TEST(MlxJsonValuesSource, TextThatChangesIsAnError) {
  std::string text = with_data("int8", "[1,2,3]", 3);
  const auto source = open(text);
  std::memset(text.data() + 52, ' ', 5);
  EXPECT_TRUE(
      fails(read(*source, 0, 3), Errc::kCorrupt, "element 0: the text ends at byte 57; the file changed after it was opened"));
  EXPECT_TRUE(
      fails(read(*source, 2, 1), Errc::kCorrupt, "element 0: the text ends at byte 57; the file changed after it was opened"));
}

}  // namespace
}  // namespace ballast::mlx_json
