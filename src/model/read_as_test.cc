#include <array>
#include <filesystem>
#include <numeric>

#include <gmock/gmock.h>

#include <ballast/model.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::one_tensor;
using test::raw;
using test::safetensors;
using test::TempDir;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Model open(const std::string& file) {
  auto model = Model::from_bytes(as_bytes(file), "m");
  EXPECT_TRUE(model) << model.error().message;
  return std::move(model).value();
}

template <class T>
std::vector<T> values(const Result<Tensor>& tensor) {
  EXPECT_TRUE(tensor) << tensor.error().message;
  const auto all = tensor->view().as<T>();
  EXPECT_TRUE(all) << all.error().message;
  return {all->begin(), all->end()};
}

TEST(ReadAs, ConvertsAndKeepsNameAndShape) {
  const std::string file = one_tensor(DType::kBF16, "[2,2]", raw<std::uint16_t>({0x3f80, 0x4000, 0xc040, 0x0000}));
  const auto tensor = open(file).read_as("t", DType::kF32);
  EXPECT_THAT(values<float>(tensor), ElementsAre(1, 2, -3, 0));
  EXPECT_EQ(tensor->name(), "t");
  EXPECT_EQ(tensor->dtype(), DType::kF32);
  EXPECT_THAT(tensor->shape(), ElementsAre(2, 2));
}

TEST(ReadAs, TheSameDTypeIsACopy) {
  const std::string file = one_tensor(DType::kF6E2M3, "[4]", "abc");
  const auto tensor = open(file).read_as("t", DType::kF6E2M3);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(test::to_text(tensor->bytes()), "abc");
}

TEST(ReadAs, FillsABufferOfTheRightSize) {
  const std::string file = one_tensor(DType::kBF16, "[2]", raw<std::uint16_t>({0x3f80, 0x4000}));
  const Model model = open(file);
  std::array<float, 2> out{};
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_TRUE(model.read_as_into("t", DType::kF32, bytes));
  EXPECT_THAT(out, ElementsAre(1, 2));
  EXPECT_TRUE(fails(model.read_as_into("t", DType::kF32, bytes.first(4)), Errc::kInvalidArgument,
                    "m: tensor 't': needs 8 bytes as F32, but the buffer has 4"));
  EXPECT_TRUE(
      fails(model.read_as_into("t", DType::kC64, bytes), Errc::kUnsupported, "m: tensor 't': cannot convert BF16 to C64"));
}

TEST(ReadAs, TensorsLongerThanABlockAreCompleteAndInOrder) {
  std::vector<std::int32_t> numbers(3'000'001);
  std::iota(numbers.begin(), numbers.end(), -1'000'000);
  const std::string_view data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int32_t));
  const std::string file = one_tensor(DType::kI32, "[3000001]", data);
  const auto floats = values<float>(open(file).read_as("t", DType::kF32));
  ASSERT_EQ(floats.size(), numbers.size());
  EXPECT_TRUE(std::ranges::equal(floats, numbers, [](float a, std::int32_t b) { return a == static_cast<float>(b); }));
}

TEST(ReadAs, LossIsAnErrorWithItsIndexUnlessAllowed) {
  std::vector<float> numbers(1'000'000, 3.0F);
  numbers[600'000] = 0.5F;
  numbers[900'000] = -1.5F;
  const std::string_view data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  const std::string file = one_tensor(DType::kF32, "[1000,1000]", data);
  const Model model = open(file);
  EXPECT_TRUE(fails(model.read_as("t", DType::kI32), Errc::kUnsupported,
                    "m: tensor 't': 2 of 1000000 values of F32 cannot be represented as I32, the first at index 600000"));
  const auto allowed = values<std::int32_t>(model.read_as("t", DType::kI32, OnLoss::kAllow));
  ASSERT_EQ(allowed.size(), numbers.size());
  EXPECT_EQ(allowed[599'999], 3);
}

TEST(ReadAs, UnsupportedConversionIsAnError) {
  const std::string file = one_tensor(DType::kC64, "[1]", "abcdefgh");
  EXPECT_TRUE(fails(open(file).read_as("t", DType::kF32), Errc::kUnsupported, "m: tensor 't': cannot convert C64 to F32"));
}

TEST(ReadAs, HalfAByteIsUnsupported) {
  const std::string file = one_tensor(DType::kU8, "[3]", "abc");
  EXPECT_TRUE(
      fails(open(file).read_as("t", DType::kF4), Errc::kUnsupported, "m: tensor 't': 3 values of F4 do not fill whole bytes"));
}

TEST(ReadAs, EmptyTensorStaysEmpty) {
  const std::string file = one_tensor(DType::kF16, "[0,7]", "");
  const auto tensor = open(file).read_as("t", DType::kF32);
  EXPECT_THAT(values<float>(tensor), IsEmpty());
  EXPECT_THAT(tensor->shape(), ElementsAre(0, 7));
}

TEST(ReadAs, UnknownNameIsNotFound) {
  const std::string file = one_tensor(DType::kU8, "[3]", "abc");
  EXPECT_TRUE(fails(open(file).read_as("u", DType::kF32), Errc::kNotFound, "m: no tensor 'u' among 1"));
  EXPECT_TRUE(fails(open(file).read_2d("u"), Errc::kNotFound, "m: no tensor 'u' among 1"));
}

TEST(ReadAs, TruncatedFileIsAnErrorWithBothSizes) {
  const TempDir dir;
  const std::string file = one_tensor(DType::kU8, "[10000]", std::string(10'000, '\1'));
  const std::string path = dir.write("x.safetensors", file);
  const auto model = Model::open(path);
  ASSERT_TRUE(model) << model.error().message;
  std::filesystem::resize_file(path, 100);
  EXPECT_TRUE(
      fails(model->read_as("t", DType::kF32), Errc::kIo,
            fmt::format("{}: tensor 't': file was truncated while open: it has 100 bytes, it had {}", path, file.size())));
}

TEST(ReadValues, ConvertsToTheRequestedType) {
  const std::string bf16 = one_tensor(DType::kBF16, "[2,2]", raw<std::uint16_t>({0x3f80, 0x4000, 0xc040, 0x0000}));
  EXPECT_THAT(open(bf16).read<float>("t").value(), ElementsAre(1, 2, -3, 0));
  EXPECT_THAT(open(bf16).read<double>("t").value(), ElementsAre(1, 2, -3, 0));
  EXPECT_THAT(open(bf16).read<std::int8_t>("t").value(), ElementsAre(1, 2, -3, 0));
  EXPECT_THAT(open(bf16).read<std::int64_t>("t").value(), ElementsAre(1, 2, -3, 0));
  const std::string u8 = one_tensor(DType::kU8, "[2]", "\1\xff");
  EXPECT_THAT(open(u8).read<std::uint8_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(u8).read<std::uint16_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(u8).read<std::int16_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(u8).read<std::uint32_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(u8).read<std::int32_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(u8).read<std::uint64_t>("t").value(), ElementsAre(1, 255));
  EXPECT_THAT(open(one_tensor(DType::kF16, "[0,7]", "")).read<float>("t").value(), IsEmpty());
}

TEST(ReadValues, RefusesLossUnlessAllowed) {
  const std::string file = one_tensor(DType::kF32, "[2]", raw<float>({3, 0.5F}));
  EXPECT_TRUE(fails(open(file).read<std::int32_t>("t"), Errc::kUnsupported,
                    "m: tensor 't': 1 of 2 values of F32 cannot be represented as I32, the first at index 1"));
  EXPECT_THAT(open(file).read<std::int32_t>("t", OnLoss::kAllow).value(), testing::SizeIs(2));
}

TEST(ReadValues, FailsLikeReadAs) {
  const std::string complex = one_tensor(DType::kC64, "[1]", "abcdefgh");
  EXPECT_TRUE(fails(open(complex).read<float>("t"), Errc::kUnsupported, "m: tensor 't': cannot convert C64 to F32"));
  EXPECT_TRUE(fails(open(complex).read<float>("u"), Errc::kNotFound, "m: no tensor 'u' among 1"));
}

TEST(Read2d, HasTheFirstDimensionByTheRest) {
  struct Case {
    std::string_view shape;
    std::vector<std::uint64_t> matrix;
  };
  for (const Case& each : {Case{"[]", {1, 1}}, Case{"[1]", {1, 1}}}) {
    const std::string file = one_tensor(DType::kU8, each.shape, "\7");
    const auto tensor = open(file).read_2d("t");
    EXPECT_THAT(values<float>(tensor), ElementsAre(7));
    EXPECT_TRUE(std::ranges::equal(tensor->shape(), each.matrix)) << each.shape;
  }
  for (const Case& each : {Case{"[6]", {6, 1}}, Case{"[2,3]", {2, 3}}, Case{"[2,3,1]", {2, 3}}, Case{"[1,2,3]", {1, 6}}}) {
    const std::string file = one_tensor(DType::kU8, each.shape, "\1\2\3\4\5\6");
    const auto tensor = open(file).read_2d("t");
    EXPECT_THAT(values<float>(tensor), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_TRUE(std::ranges::equal(tensor->shape(), each.matrix)) << each.shape;
  }
  for (const Case& each : {Case{"[0]", {0, 1}}, Case{"[0,4,2]", {0, 8}}, Case{"[4,0,2]", {4, 0}}}) {
    const std::string file = one_tensor(DType::kU8, each.shape, "");
    const auto tensor = open(file).read_2d("t");
    EXPECT_THAT(values<float>(tensor), IsEmpty());
    EXPECT_TRUE(std::ranges::equal(tensor->shape(), each.matrix)) << each.shape;
  }
}

TEST(Read2d, ColumnsPast64BitsAreUnsupported) {
  const std::string file = one_tensor(DType::kU8, "[0,9223372036854775808,4]", "");
  EXPECT_TRUE(
      fails(open(file).read_2d("t"), Errc::kUnsupported, "m: tensor 't': the number of matrix columns overflows 64 bits"));
}

TEST(ReadAll2d, KeepsTheOrderOfTheModel) {
  const std::string file = safetensors(R"({"z":{"dtype":"U8","shape":[1,2],"data_offsets":[0,2]},)"
                                       R"("a":{"dtype":"U8","shape":[],"data_offsets":[2,3]}})",
                                       "\1\2\3");
  const auto all = open(file).read_all_2d();
  ASSERT_TRUE(all) << all.error().message;
  ASSERT_EQ(all->size(), 2);
  EXPECT_EQ(all->at(0).name(), "z");
  EXPECT_THAT(*all->at(0).view().as<float>(), ElementsAre(1, 2));
  EXPECT_EQ(all->at(1).name(), "a");
  EXPECT_THAT(all->at(1).shape(), ElementsAre(1, 1));
}

TEST(ReadAll2d, FailsWithTheFirstTensorThatDoesNotConvert) {
  const std::string file = one_tensor(DType::kC64, "[1]", "abcdefgh");
  EXPECT_TRUE(fails(open(file).read_all_2d(), Errc::kUnsupported, "m: tensor 't': cannot convert C64 to F32"));
}

}  // namespace
}  // namespace ballast
