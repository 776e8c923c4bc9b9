#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// The scales or zero points of one quantized weight: for every row, one number per group of columns.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;
  virtual ~Parameters() = default;

  virtual std::uint64_t groups() const = 0;
  // Reads the numbers of whole rows; `out` has exactly their size.
  virtual Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const = 0;
  // See RowDecoder::check_values().
  virtual Result<std::vector<std::string>> check_values(const Model& model) const = 0;
};

// What a scale of zero means.
enum class ZeroScale : std::uint8_t {
  kDefect,   // this quantizer never writes it
  kAllowed,  // for groups of zeros
};

// A tensor of parameters, in row-major order: a matrix of blocks of rows by groups of columns.
struct ParameterTable {
  const TensorInfo* tensor = nullptr;
  DType dtype = DType::kF32;           // of its elements, for tensors of raw bytes
  std::uint64_t groups = 1;            // per row
  std::uint64_t block_rows = 1;        // rows that share parameters; the last block of a matrix may have fewer
  std::uint64_t matrix_rows = 0;       // rows of each matrix, if the weight is a stack of several; 0: one matrix of all rows
  const TensorInfo* factor = nullptr;  // a scalar, or one for each matrix, that multiplies all scales, or divides them
  bool divides = false;
  ZeroScale zero = ZeroScale::kDefect;
};
std::unique_ptr<const Parameters> parameter_table(const ParameterTable& table);

// All elements of a tensor as F32. For small tensors.
Result<std::vector<float>> read_floats(const Model& model, const TensorInfo& tensor, DType dtype);

// Describes scales that are NaN, infinite or, if that is a defect, zero: "tensor 'a.scales': 3 of 64 scales are NaN or infinite,
// the first at 5".
Result<std::vector<std::string>> check_scales(const Model& model, const TensorInfo& tensor, DType dtype, ZeroScale zero);

}  // namespace ballast
