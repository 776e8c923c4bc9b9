#include <ballast/extract.h>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;
using test::raw;

Result<std::string> npy(const std::string& file, std::string_view name, std::string_view slices = {}) {
  const auto model = Model::from_bytes(test::as_bytes(file), "m");
  if (!model) return std::unexpected(model.error());
  std::vector<Slice> taken;
  if (!slices.empty()) taken = *parse_slices(slices);
  std::string out;
  const auto dtype = write_npy(*model, name, taken, [&](std::span<const std::byte> bytes) -> Result<void> {
    out += test::to_text(bytes);
    return {};
  });
  if (!dtype) return std::unexpected(dtype.error());
  return out;
}

// As numpy.save writes it.
std::string header(const std::string& dict) {
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict + std::string(117 - dict.size(), ' ') + "\n";
}

TEST(Npy, HasNumpysHeader) {
  const std::string file =
      test::safetensors(R"({"t":{"dtype":"I16","shape":[3],"data_offsets":[0,6]}})", raw<std::int16_t>({1, 2, 3}));
  EXPECT_EQ(npy(file, "t").value_or(""),
            header("{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }") + raw<std::int16_t>({1, 2, 3}));
  EXPECT_EQ(npy(file, "t", "::-2").value_or(""),
            header("{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }") + raw<std::int16_t>({3, 1}));
}

TEST(Npy, WritesFloatsThatNumpyDoesNotKnowAsF32) {
  const std::string file = test::safetensors(
      R"({"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"f":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]}})",
      raw<std::uint16_t>({0x3fc0, 0xff80}) + "\x21\x43\x65");
  EXPECT_EQ(npy(file, "b").value_or(""), header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }") +
                                             raw<float>({1.5F, -std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(npy(file, "f").value_or(""),
            header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }") + raw<float>({0.5F, 1, 1.5F, 2, 3, 4}));
}

TEST(Npy, ScalarsAndEmptyTensors) {
  const std::string file = test::safetensors(
      R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"U8","shape":[0,4],"data_offsets":[8,8]}})",
      raw<double>({4}));
  EXPECT_EQ(npy(file, "s").value_or(""), header("{'descr': '<f8', 'fortran_order': False, 'shape': (), }") + raw<double>({4}));
  EXPECT_EQ(npy(file, "e").value_or(""), header("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 4), }"));
}

TEST(Npy, RefusesWhatNumpyCannotHold) {
  const std::string file = test::safetensors(R"({"t":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", "abc");
  EXPECT_TRUE(fails(npy(file, "t"), Errc::kUnsupported, "m: tensor 't': NumPy has no F6_E2M3"));
  std::string dims = "1";
  for (int i = 0; i < 64; ++i) dims += ",1";
  EXPECT_TRUE(fails(npy(test::one_tensor(DType::kU8, "[" + dims + "]", "a"), "t"), Errc::kUnsupported,
                    "m: tensor 't': has 65 dimensions, NumPy allows 64"));
  EXPECT_TRUE(fails(npy(file, "u"), Errc::kNotFound, "m: no tensor 'u' among 1"));
}

}  // namespace
}  // namespace ballast
