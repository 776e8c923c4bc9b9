#include <ballast/weights.h>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "model/state.h"
#include "tests/support/counting_source.h"
#include "tests/support/tensors.h"

namespace ballast {
namespace {

using test::CountingSource;
using test::TensorText;

// The rows of a GPTQ weight are columns of its codes, in the file far apart from each other.
TEST(Weights, ATransposedWeightIsReadOncePerThread) {
  constexpr std::uint64_t kRows = 1024;
  constexpr std::uint64_t kColumns = 4096;
  const std::string file =
      test::safetensors({TensorText{"a.qweight", DType::kI32, {kColumns / 8, kRows}},
                         TensorText{"a.qzeros", DType::kI32, {1, kRows / 8}}, TensorText{"a.scales", DType::kF16, {1, kRows}}});
  ModelConfig config;
  config.json = R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}})";
  std::atomic<std::uint64_t> count = 0;
  auto model =
      ModelAccess::open_virtual(std::make_unique<CountingSource>(file, count), "m", std::nullopt, config, {}, std::nullopt);
  ASSERT_TRUE(model) << model.error().message;
  const auto weights = Weights::from_model(*std::move(model));
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_EQ(weights->scheme(), "gptq");
  count = 0;
  ASSERT_TRUE(weights->read("a.weight", DType::kBF16));
  EXPECT_GE(count, kRows * kColumns / 2);
  EXPECT_LE(count, file.size() * (thread_count(0) + 1));
}

}  // namespace
}  // namespace ballast
