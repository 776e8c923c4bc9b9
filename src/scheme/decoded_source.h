#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/weights.h>

#include "model/state.h"

namespace ballast {

// Changes the values of a weight when they are read. Thread-safe.
class ValueChange {
 public:
  ValueChange() = default;
  ValueChange(const ValueChange&) = delete;
  ValueChange& operator=(const ValueChange&) = delete;
  virtual ~ValueChange() = default;

  // `values` are those of the weight from element `first` on, in C order.
  virtual Result<void> apply(std::uint64_t first, std::span<float> values) const = 0;
};

// A weight with changed values: they are computed in F32, and rounded once.
struct ChangedWeight {
  std::vector<std::unique_ptr<const ValueChange>> changes;  // one after the other
  DType dtype = DType::kF32;                                // a float of whole bytes
};

using ChangedWeights = std::map<std::string, ChangedWeight, std::less<>>;  // by name

// How weights become a model of their values.
struct DecodeOptions {
  std::optional<DType> dtype;  // of quantized weights that are not changed; see decoded_dtype()
  ChangedWeights changed;
  std::vector<MergedAdapter> adapters;  // that the changes come from
  std::string identity;                 // of the changes; see Source::identity()
  std::vector<std::string> notes;       // see Decoded
};

// A model of the logical weights, whose values are computed when they are read: one virtual SafeTensors file.
Result<Model> open_decoded(Weights weights, DecodeOptions options);

// The default dtype of decoded weights: their original dtype, or F32 if that has fewer than 16 bits.
DType decoded_dtype(const Weight& weight);

}  // namespace ballast
