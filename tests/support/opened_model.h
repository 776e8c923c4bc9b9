#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/weights.h>

#include "scheme/reader.h"
#include "tests/support/tensors.h"

namespace ballast::test {

struct FileText {
  std::string_view name;
  std::string text;
};

// A model directory with quantized weights, opened.
class OpenedModel {
 public:
  explicit OpenedModel(const std::vector<TensorText>& tensors, const std::vector<FileText>& files = {})
      : weights_(open(tensors, files)) {}

  const Result<Weights>& weights() const { return weights_; }
  const std::string& path() const { return dir_.path(); }

  // The message after "/tmp/…/model.safetensors: ".
  testing::AssertionResult refused(Errc code, std::string_view rest) const {
    return fails(weights_, code, dir_.path("model.safetensors") + ": " + std::string(rest));
  }

  // The values of a weight; empty, with a failure, if it cannot be read.
  std::vector<float> values(std::string_view name) const {
    if (!weights_) {
      ADD_FAILURE() << weights_.error().message;
      return {};
    }
    const auto read = weights_->read(name, DType::kF32);
    if (!read) {
      ADD_FAILURE() << read.error().message;
      return {};
    }
    std::vector<float> values(read->bytes().size() / sizeof(float));
    std::memcpy(values.data(), read->bytes().data(), read->bytes().size());
    return values;
  }

  // What verify says of scales, zero points and indices.
  std::vector<std::string> defects() const {
    if (!weights_) {
      ADD_FAILURE() << weights_.error().message;
      return {};
    }
    auto found = reader_of(*weights_).check_values();
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<std::string>{});
  }

 private:
  Result<Weights> open(const std::vector<TensorText>& tensors, const std::vector<FileText>& files) const {
    dir_.write("model.safetensors", safetensors(tensors));
    for (const FileText& file : files) dir_.write(file.name, file.text);
    return Weights::open(dir_.path());
  }

  TempDir dir_;
  Result<Weights> weights_;
};

}  // namespace ballast::test
