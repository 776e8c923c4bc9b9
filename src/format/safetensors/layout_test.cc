#include "format/safetensors/layout.h"

#include <gtest/gtest.h>

#include "format/safetensors/header.h"
#include "tests/support/files.h"

namespace ballast::safetensors {
namespace {

using test::fails;

// The reference implementation wrote these bytes.
TEST(SafetensorsLayout, NoTensorsGiveTwoBracesAndSixSpaces) {
  const auto layout = make_layout({}, {});
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_EQ(layout->header, test::safetensors("{}      "));
  EXPECT_EQ(layout->file_size, 16U);
}

TEST(SafetensorsLayout, OrdersByDescendingRankThenName) {
  const std::vector<TensorSpec> tensors{{.name = "b", .dtype = DType::kF16, .shape = {2}},
                                        {.name = "a", .dtype = DType::kU8, .shape = {3}},
                                        {.name = "z", .dtype = DType::kF32, .shape = {1, 1}},
                                        {.name = "a2", .dtype = DType::kF16, .shape = {}}};
  const auto layout = make_layout(tensors, {});
  ASSERT_TRUE(layout);
  const std::string json =
      R"({"z":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"a2":{"dtype":"F16","shape":[],"data_offsets":[4,6]},)"
      R"("b":{"dtype":"F16","shape":[2],"data_offsets":[6,10]},"a":{"dtype":"U8","shape":[3],"data_offsets":[10,13]}})";
  const std::string padding((8 - json.size() % 8) % 8, ' ');
  EXPECT_EQ(layout->header, test::safetensors(json + padding));
  const std::uint64_t start = layout->header.size();
  EXPECT_EQ(layout->offsets, (std::vector<std::uint64_t>{start + 6, start + 10, start, start + 4}));
  EXPECT_EQ(layout->file_size, start + 13);
}

TEST(SafetensorsLayout, MetadataComesFirstAndSorted) {
  const auto layout = make_layout({}, {{"format", "pt"}, {"a\"b", "line\n\x01\x7f"}});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->header.substr(8), R"({"__metadata__":{"a\"b":"line\n\u0001)"
                                      "\x7f"
                                      R"(","format":"pt"}} )");
  EXPECT_EQ(layout->header.size() % 8, 0U);
}

TEST(SafetensorsLayout, EmptyMetadataIsOmittedUnlessRequested) {
  EXPECT_EQ(make_layout({}, {})->header.substr(8), "{}      ");
  EXPECT_EQ(make_layout({}, {}, /*keep_empty_metadata=*/true)->header.substr(8), R"({"__metadata__":{}}     )");
}

TEST(SafetensorsLayout, RoundTripsThroughTheReader) {
  const std::vector<TensorSpec> tensors{{.name = "ä\"\\", .dtype = DType::kF4, .shape = {3, 2}},
                                        {.name = "", .dtype = DType::kC64, .shape = {0}}};
  const auto layout = make_layout(tensors, {{"k", "v"}});
  ASSERT_TRUE(layout);
  const auto header = parse_header(test::as_bytes(layout->header), layout->file_size);
  ASSERT_TRUE(header) << header.error().message;
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[1].name, "ä\"\\");
  EXPECT_EQ(header->data_start + header->tensors[1].begin, layout->offsets[0]);
  EXPECT_EQ(header->metadata, (Metadata{{"k", "v"}}));
}

TEST(SafetensorsLayout, RefusesInvalidNames) {
  const auto named = [](std::string name) { return std::vector<TensorSpec>{{.name = std::move(name), .shape = {1}}}; };
  EXPECT_TRUE(fails(make_layout(named("__metadata__"), {}), Errc::kInvalidArgument,
                    "a tensor cannot be named '__metadata__'; SafeTensors stores its metadata under this name"));
  EXPECT_TRUE(fails(make_layout(named("\xff"), {}), Errc::kInvalidArgument, "tensor '\\xff': the name is not valid UTF-8"));
  EXPECT_TRUE(fails(make_layout({}, {{"k", "\xc0\x80"}}), Errc::kInvalidArgument, "metadata 'k': not valid UTF-8"));
  auto twice = named("t");
  twice.push_back(twice.front());
  EXPECT_TRUE(fails(make_layout(twice, {}), Errc::kInvalidArgument, "duplicate tensor name 't'"));
}

TEST(SafetensorsLayout, RefusesShapesThatOverflowOrEndInsideAByte) {
  const auto shaped = [](DType dtype, std::vector<std::uint64_t> shape) {
    return std::vector<TensorSpec>{{.name = "t", .dtype = dtype, .shape = std::move(shape)}};
  };
  EXPECT_TRUE(fails(make_layout(shaped(DType::kU8, {1ULL << 63, 4}), {}), Errc::kInvalidArgument,
                    "tensor 't': the size of shape [9223372036854775808, 4] overflows"));
  EXPECT_TRUE(fails(make_layout(shaped(DType::kF64, {1ULL << 60}), {}), Errc::kInvalidArgument,
                    "tensor 't': the size of shape [1152921504606846976] overflows"));
  EXPECT_TRUE(fails(make_layout(shaped(DType::kF4, {1, 3}), {}), Errc::kInvalidArgument,
                    "tensor 't': 3 values of 4 bits do not fill whole bytes"));
}

TEST(SafetensorsLayout, RefusesAHeaderThatReadersWouldRefuse) {
  EXPECT_TRUE(fails(make_layout({}, {{"k", std::string(100'000'000, 'x')}}), Errc::kWrite,
                    "the header needs 100000032 bytes, but readers accept at most 100000000; split the model into shards"));
}

TEST(SafetensorsLayout, BoundsAreNeverTooLow) {
  const Metadata metadata{{"k", "v\x01"}};
  const std::vector<TensorSpec> tensors{
      {.name = "\x01\x02", .dtype = DType::kF8E4M3Fnuz, .shape = {UINT64_MAX, 0, UINT64_MAX, 1}}, {.name = "", .shape = {}}};
  std::uint64_t bound = header_bound(metadata);
  for (const TensorSpec& tensor : tensors) bound += entry_bound(tensor);
  const auto layout = make_layout(tensors, metadata);
  ASSERT_TRUE(layout) << layout.error().message;
  EXPECT_GE(bound, layout->header.size());
}

}  // namespace
}  // namespace ballast::safetensors
