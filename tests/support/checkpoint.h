#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/weights.h>

#include "scheme/reader.h"
#include "tests/support/tensors.h"

namespace ballast::test {

struct FileText {
  std::string_view name;
  std::string text;
};

// A model directory with quantized weights, opened.
class Checkpoint {
 public:
  // `config` is the text of config.json; empty: there is none. `metadata` is that of the header.
  explicit Checkpoint(const std::vector<TensorText>& tensors, std::string_view config = {}, std::string_view metadata = {})
      : weights_(open(tensors, {{.name = "config.json", .text = std::string(config)}}, metadata)) {}
  Checkpoint(const std::vector<TensorText>& tensors, const std::vector<FileText>& files) : weights_(open(tensors, files, {})) {}

  const Result<Weights>& weights() const { return weights_; }
  // "/tmp/…/model.safetensors: tensor …"
  std::string message(std::string_view rest) const { return dir_.path("model.safetensors") + ": " + std::string(rest); }
  const std::string& path() const { return dir_.path(); }

  testing::AssertionResult refused(Errc code, std::string_view rest) const { return fails(weights_, code, message(rest)); }

  // The values of a weight, decoded at once; empty, with a failure, if it cannot be read.
  std::vector<float> values(std::string_view name) const {
    if (!opened()) return {};
    const auto read = weights_->read(name, DType::kF32);
    if (!read) {
      ADD_FAILURE() << read.error().message;
      return {};
    }
    std::vector<float> values(read->bytes().size() / sizeof(float));
    std::memcpy(values.data(), read->bytes().data(), read->bytes().size());
    return values;
  }

  // The same, decoded row by row.
  std::vector<float> values_by_row(std::string_view name) const {
    const Weight* const weight = opened() ? weights_->find(name) : nullptr;
    if (weight == nullptr) return {};
    std::vector<float> values(weight->elements());
    const std::uint64_t columns = values.size() / weight->rows;
    for (std::uint64_t row = 0; row < weight->rows; ++row) {
      const auto out = std::as_writable_bytes(std::span(values).subspan(row * columns, columns));
      const auto read = weights_->read_rows(name, row, 1, DType::kF32, out);
      EXPECT_TRUE(read) << read.error().message;
    }
    return values;
  }

  // What verify says of scales, zero points and indices.
  std::vector<std::string> defects() const {
    if (!opened()) return {};
    auto found = reader_of(*weights_).check_values();
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<std::string>{});
  }

 private:
  Result<Weights> open(const std::vector<TensorText>& tensors, const std::vector<FileText>& files,
                       std::string_view metadata) const {
    dir_.write("model.safetensors", safetensors(tensors, metadata));
    for (const FileText& file : files) {
      if (!file.text.empty()) dir_.write(file.name, file.text);
    }
    return Weights::open(dir_.path());
  }

  bool opened() const {
    if (!weights_) ADD_FAILURE() << weights_.error().message;
    return weights_.has_value();
  }

  TempDir dir_;
  Result<Weights> weights_;
};

}  // namespace ballast::test
