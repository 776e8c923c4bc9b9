#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ballast/model.h>
#include <ballast/quantize_config.h>
#include <ballast/work.h>

#include "calibrate/calibration.h"
#include "plan/layer_plan.h"
#include "quantize/guessed_importance.h"
#include "quantize/quality.h"
#include "scheme/scheme.h"

namespace ballast {

// Buffers of one block, reused by a thread.
struct CodedBuffers {
  std::vector<std::byte> in;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;
  std::vector<float> time_bias;

  CodedRows rows(const RowFormat& format, std::uint64_t count);
  CodedRows filled() { return {.packed = packed, .scales = scales, .offsets = offsets}; }
};

// Reads rows of a model and quantizes them by a layout, with the statistics of their inputs. Thread-safe. Each call is given a
// layout, so trying other bits or scales changes no state.
class LayerCoder {
 public:
  // All are borrowed. `source` is the model whose files are read: `model`, or what that is arranged from. `calibration` may be
  // null.
  LayerCoder(const Model& model, const Model& source, const QuantizeConfig& config, Calibration* calibration,
             const WorkOptions& work);

  // The layout of a tensor by `plan`.
  WeightLayout layout(std::size_t tensor, const LayerPlan& plan) const;

  Result<void> read(const WeightLayout& layout, std::uint64_t first_row, std::uint64_t rows, std::vector<std::byte>& into) const;
  Result<QualitySums> code(const WeightLayout& layout, const TensorBlock& block, CodedBuffers& buffers) const;
  Result<std::shared_ptr<const LayerInputs>> inputs(std::size_t tensor) const;
  // Adds the time-aware parameters to quantized rows.
  Result<CodedBlock> finish(std::size_t tensor, const WeightLayout& layout, CodedBuffers& buffers) const;

  // Rows spread over the tensor, for try_sample() and largest().
  struct SampleRows {
    std::uint64_t most;
    std::uint64_t in_a_run;  // consecutive rows, read with one request
  };
  Result<void> read_sample(std::size_t tensor, const WeightLayout& layout, const SampleRows& rows, CodedBuffers& buffers) const;
  // The quality of the rows in `buffers`, as an estimate. Cosine -1 if they cannot be quantized.
  Result<Quality> try_sample(std::size_t tensor, const WeightLayout& layout, CodedBuffers& buffers) const;
  // The largest magnitude in each column.
  Result<std::vector<float>> largest(const WeightLayout& layout, const CodedBuffers& buffers) const;
  Result<Quality> measure(std::size_t tensor, const WeightLayout& layout, unsigned threads) const;

  // Joins runs of rows.
  Result<void> read_runs(std::size_t tensor, std::uint64_t row_bytes, std::span<const RowRun> runs,
                         std::vector<std::byte>& into) const;
  // The importance of the columns of a tensor without statistics; empty unless the method guesses it.
  Result<std::shared_ptr<const std::vector<float>>> guess(std::size_t tensor, const WeightLayout& layout) const;

  std::unexpected<Error> fail_tensor(std::string_view tensor, Errc code, const std::string& message) const;

  const Model& model() const { return model_; }
  const Model& source() const { return source_; }
  const QuantizeConfig& config() const { return config_; }
  const WritableScheme& scheme() const { return scheme_; }
  Calibration* calibration() const { return calibration_; }
  const WorkOptions& work() const { return work_; }

 private:
  Result<QualitySums> code_rows(std::size_t tensor, const WeightLayout& layout, std::uint64_t rows, CodedBuffers& buffers) const;
  Result<void> check(const WeightLayout& layout, const TensorBlock& block, const QualitySums& sums,
                     const CodedBuffers& buffers) const;
  Result<void> report_trial(std::string_view tensor) const;

  const Model& model_;
  const Model& source_;
  const QuantizeConfig& config_;
  const WritableScheme& scheme_;
  Calibration* calibration_;
  const WorkOptions& work_;

  struct Guesses {
    std::mutex mutex;
    std::map<std::size_t, std::shared_ptr<const std::vector<float>>> of_tensors;
  };
  std::shared_ptr<Guesses> guesses_ = std::make_shared<Guesses>();
};

}  // namespace ballast
