#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/weights.h>

#include "scheme/reader.h"
#include "tests/support/tensors.h"

namespace ballast::test {

// A model of one file in a directory. Without `config`, the file is opened alone.
struct StoredModel {
  std::vector<TensorText> tensors;
  std::string_view config = {};
  std::string_view metadata = {};
};

inline Result<Weights> open_weights(const TempDir& dir, const StoredModel& model) {
  const std::string file = dir.write("model.safetensors", safetensors(model.tensors, model.metadata));
  if (model.config.empty()) return Weights::open(file);
  dir.write("config.json", model.config);
  return Weights::open(dir.path());
}

// All values of a weight as F32, decoded at once.
inline std::vector<float> values_of(const Weights& weights, std::string_view name) {
  const auto read = weights.read(name, DType::kF32);
  if (!read) {
    ADD_FAILURE() << read.error().message;
    return {};
  }
  const auto* const values = reinterpret_cast<const float*>(read->bytes().data());
  return {values, values + read->bytes().size() / sizeof(float)};
}

// The same, decoded row by row.
inline std::vector<float> values_by_row(const Weights& weights, std::string_view name) {
  const Weight* const weight = weights.find(name);
  if (weight == nullptr) return {};
  std::vector<float> values(weight->elements());
  const std::uint64_t columns = values.size() / weight->rows;
  for (std::uint64_t row = 0; row < weight->rows; ++row) {
    const auto out = std::as_writable_bytes(std::span(values).subspan(row * columns, columns));
    const auto read = weights.read_rows(name, row, 1, DType::kF32, out);
    EXPECT_TRUE(read) << read.error().message;
  }
  return values;
}

// EXPECT_TRUE(open_fails({…}, Errc::kCorrupt, "tensor 'a': …")): the message after the path of the file.
inline testing::AssertionResult open_fails(const StoredModel& model, Errc code, std::string_view message) {
  const TempDir dir;
  return fails(open_weights(dir, model), code, fmt::format("{}: {}", dir.path("model.safetensors"), message));
}

}  // namespace ballast::test
