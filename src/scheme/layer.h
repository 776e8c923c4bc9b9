#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/weights.h>

#include "base/fail.h"
#include "base/text.h"

namespace ballast {

// Decodes the rows of one quantized weight. Sizes are checked when it is made; values that serve as an index are checked when
// they are read. Thread-safe.
class RowDecoder {
 public:
  RowDecoder() = default;
  RowDecoder(const RowDecoder&) = delete;
  RowDecoder& operator=(const RowDecoder&) = delete;
  virtual ~RowDecoder() = default;

  // Decodes rows [first, first + count) to F32; `out` has exactly their size.
  virtual Result<void> decode(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const = 0;
  // Whether rows are not contiguous in the file, so that many at a time are much cheaper than few.
  virtual bool is_transposed() const { return false; }
  // Reads scales, zero points and indices, and describes those that no quantizer writes, one line each, for verify.
  virtual Result<std::vector<std::string>> check_values(const Model& model) const = 0;
};

// A quantized weight of a model, whose sizes are checked. Borrows tensors from the model.
struct Layer {
  std::string name;            // logical: "model.layers.0.mlp.up_proj.weight"
  DType dtype = DType::kBF16;  // original, or the best guess
  std::vector<std::uint64_t> shape;
  std::uint64_t rows = 0;                // of the matrix that is decoded
  Storage storage;                       // without the name of the scheme
  std::vector<const TensorInfo*> parts;  // the stored tensors; the first holds the codes
  std::unique_ptr<const RowDecoder> decoder;
};

// What a scheme found in a model.
struct Layers {
  std::vector<Layer> layers;
  std::vector<const TensorInfo*>
      dropped;  // belong to the quantization, but not to the value of a weight: input scales and the like
};

// kCorrupt: "model.safetensors: tensor 'a.weight_scale': shape is [3], expected [4]"
template <class... Args>
std::unexpected<Error> fail_tensor(const Model& model, const TensorInfo& tensor, Errc code, fmt::format_string<Args...> format,
                                   Args&&... args) {
  return fail(code, "{}: tensor {}: {}", escape(model.files()[tensor.file].path), quote(tensor.name),
              fmt::format(format, std::forward<Args>(args)...));
}

// Fails unless the tensor has one of these dtypes.
Result<void> check_dtype(const Model& model, const TensorInfo& tensor, std::initializer_list<DType> expected);

// Fails unless the tensor has this shape. `why` says what it follows from.
Result<void> check_shape(const Model& model, const TensorInfo& tensor, const std::vector<std::uint64_t>& expected,
                         const std::string& why);

// `name` with `suffix` replaced by `other`; null if it does not end so, or if there is no such tensor.
const TensorInfo* find_sibling(const Model& model, std::string_view name, std::string_view suffix, std::string_view other);

}  // namespace ballast
