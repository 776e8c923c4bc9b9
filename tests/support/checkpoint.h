#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <ballast/weights.h>

#include "tests/support/tensors.h"

namespace ballast::test {

// A model directory with quantized weights.
class Checkpoint {
 public:
  // `config` is the text of config.json; empty: there is none.
  explicit Checkpoint(const std::vector<TensorText>& tensors, std::string_view config = {}) : weights_(open(tensors, config)) {}

  const Result<Weights>& weights() const { return weights_; }
  // "/tmp/…/model.safetensors: tensor …"
  std::string message(std::string_view rest) const { return dir_.path("model.safetensors") + ": " + std::string(rest); }
  const std::string& path() const { return dir_.path(); }

  testing::AssertionResult refused(Errc code, std::string_view rest) const { return fails(weights_, code, message(rest)); }

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

 private:
  Result<Weights> open(const std::vector<TensorText>& tensors, std::string_view config) const {
    dir_.write("model.safetensors", safetensors(tensors));
    if (!config.empty()) dir_.write("config.json", config);
    return Weights::open(dir_.path());
  }

  TempDir dir_;
  Result<Weights> weights_;
};

}  // namespace ballast::test
