#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/tensor.h>

#include "quantize/rows.h"
#include "scheme/declared.h"
#include "scheme/reader.h"
#include "scheme/writer.h"

namespace ballast {

// The matrix that a tensor is quantized as, row by row.
struct Matrix {
  std::uint64_t rows;
  std::uint64_t columns;
};

// How many bytes the files of an output take, before it is written.
class SizeModel {
 public:
  SizeModel() = default;
  SizeModel(const SizeModel&) = delete;
  SizeModel& operator=(const SizeModel&) = delete;
  virtual ~SizeModel() = default;

  // Whether sizes are exact, or estimates because something is compressed.
  virtual bool is_exact() const = 0;
  // Of one quantized weight, given a sample of its rows.
  virtual Result<std::uint64_t> weight_bytes(const OutputPlan& plan, const WeightLayout& weight,
                                             const CodedBlock& sample) const = 0;
  // Of everything but the quantized weights.
  virtual Result<std::uint64_t> fixed_bytes(const OutputPlan& plan) const = 0;
};

// One way of storing quantized weights. An object has no state: there is one for each scheme.
class Scheme {
 public:
  Scheme() = default;
  Scheme(const Scheme&) = delete;
  Scheme& operator=(const Scheme&) = delete;
  virtual ~Scheme() = default;

  virtual std::string_view name() const = 0;

  // Takes the model over if its config or tensors show that its weights are stored this way, and claims the tensors that they
  // consist of, after checking every size. Null otherwise; the model stays as it is then. `declared` is what find_declared()
  // found.
  virtual Result<std::unique_ptr<WeightsReader>> open(Model& model, std::span<const Declared> declared) const = 0;
};

// A scheme that can be written: its name is a --format.
class WritableScheme : public Scheme {
 public:
  // How a tensor is quantized; empty for one that is always left unquantized.
  virtual std::optional<Matrix> matrix_of(const TensorInfo& tensor) const = 0;
  // Refuses columns that are not a multiple of the group size, if the scheme needs that.
  virtual Result<void> check_groups(const TensorInfo& tensor, const Matrix& matrix, unsigned group_size) const = 0;
  virtual Affine affine(bool is_asymmetric) const = 0;
  // The dtype of scales and offsets that are floats.
  virtual DType parameter_dtype(DType weights) const = 0;
  virtual PowerRule power_rule() const { return PowerRule::kClipsNothing; }
  // Whether rows share words or scales, RowFormat::is_aligned.
  virtual bool is_aligned() const { return false; }
  // Whether loaders join layers into one, such as those of queries, keys and values, which then must be stored alike.
  virtual bool has_fused_layers() const { return false; }
  // What users should know about an output that not all loaders take.
  virtual std::vector<std::string> warnings(std::span<const WeightLayout>) const { return {}; }
  // Of a quantized weight, in all its tensors, before compression.
  virtual std::uint64_t stored_bytes(const WeightLayout& weight) const { return weight.rows * weight.format().stored_bytes(); }

  // Refuses names that the scheme could not tell apart. `model` is for messages.
  virtual Result<void> check_names(const std::string& model, std::span<const WeightLayout> weights) const = 0;
  virtual Result<std::unique_ptr<SizeModel>> make_size_model() const = 0;
  // The plan must outlive the writer.
  virtual Result<std::unique_ptr<QuantizedWriter>> create_writer(const std::string& directory, const OutputPlan& plan,
                                                                 bool sync) const = 0;

  // OutputPlan::key of the output in a directory; empty if there is no complete one.
  virtual std::string finished_key(const std::string& directory) const = 0;
  // The file that is written last.
  virtual std::string_view last_file() const = 0;
};

const WritableScheme& mlx_scheme();
const WritableScheme& parquet_scheme();
const WritableScheme& writable_compressed_tensors();
const WritableScheme& writable_fp8();

// All schemes, in the order in which they are tried.
std::span<const Scheme* const> all_schemes();

}  // namespace ballast
