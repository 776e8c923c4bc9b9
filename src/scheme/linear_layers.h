#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/tensor.h>

#include "scheme/scheme.h"
#include "scheme/writer.h"

namespace ballast {

// The matrix of a linear layer inside the blocks of a model, which are numbered; empty for embeddings, output layers, norms,
// convolutions, routers and everything that is not a matrix. These are what llm-compressor and the publishers of FP8 models
// quantize.
std::optional<Matrix> linear_in_block(const TensorInfo& tensor);

// The modules that a loader would take for quantized unless the config names them: those of unquantized matrices, without
// embeddings, and the output layer, which has no tensor if it shares that of the embedding. In order.
std::vector<std::string> unquantized_modules(std::span<const WeightLayout> weights);

// As a JSON array.
std::string json_list(std::span<const std::string> texts);

// What blocks of rows mean for layers that vLLM joins, in words; empty if all fit.
std::vector<std::string> describe_blocks_that_cross(std::span<const WeightLayout> weights);

}  // namespace ballast
