#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/tensor_spec.h>

#include "scheme/scheme.h"

namespace ballast {

// What a stored tensor of a quantized weight holds.
enum class StoredPart : std::uint8_t {
  kCodes,       // a stream for each row, padded to words if the tensor has rows of words
  kScales,      // a row for each row of the weight, or for each band; or the scale of the tensor
  kBiases,      // a row for each row
  kZeroPoints,  // as codes, down the rows: a column of words for each group
  kDivisor,     // of the scales
  kShape,       // of the weight
};

struct StoredTensor {
  StoredPart part;
  TensorSpec spec;

  std::uint64_t bytes() const;
};

// A scheme whose output is a directory of SafeTensors with a section in config.json.
class TensorsScheme : public WritableScheme {
 public:
  // The tensors of a quantized weight, in the order in which they are stored.
  virtual std::vector<StoredTensor> stored_tensors(const WeightLayout& weight) const = 0;
  // `format` in the metadata of the files.
  virtual std::string_view metadata_format() const = 0;
  // The text of config.json, made from that of the model.
  virtual Result<std::string> with_section(const std::string& config, const OutputPlan& plan) const = 0;

  // Refuses an output with two tensors of one name.
  Result<void> check_names(const std::string& model, std::span<const WeightLayout> weights) const override;

  std::uint64_t stored_bytes(const WeightLayout& weight) const final;
  Result<std::unique_ptr<SizeModel>> make_size_model() const final;
  Result<std::unique_ptr<QuantizedWriter>> create_writer(const std::string& directory, const OutputPlan& plan,
                                                         bool sync) const final;
  std::string finished_key(const std::string& directory) const final;
  std::string_view last_file() const final;
};

}  // namespace ballast
