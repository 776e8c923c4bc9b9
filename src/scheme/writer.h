#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/quantize_config.h>

#include "calibrate/calibration.h"
#include "plan/layer_plan.h"
#include "quantize/rows.h"
#include "calibrate/time_bias.h"
#include "output/output.h"

namespace ballast {

// Some rows of one tensor: the unit of work, and in Parquet a row. How tensors are cut depends on them alone.
struct TensorBlock {
  std::size_t tensor;  // of the model
  std::uint64_t first_row;
  std::uint64_t rows;
  std::uint32_t number;  // among the blocks of its tensor
  std::uint32_t count;   // of these
};

// Everything about the work that is fixed before it begins.
struct QuantizeWork {
  const Model& model;
  const QuantizeConfig& config;
  Modality modality;
  std::vector<LayerPlan> plans;              // for each tensor
  std::vector<RowFormat> formats;            // for each tensor; those kept have rows of bytes, in `columns`
  std::vector<std::vector<float>> restore;   // for each tensor: what RowFormat::restore has, or nothing
  std::vector<TensorBlock> blocks;           // in the order of the model
  std::unique_ptr<Calibration> calibration;  // null without statistics
  bool is_diffusion;
  std::vector<Companion> companions;  // config.json and so on
  std::string key;                    // of the config and of what the model is made of: stored with the result
  std::string resume_key;             // the same, and of when its files were changed
  std::string source_json;            // which files were read, as JSON

  bool is_quantized(std::size_t tensor) const { return plans[tensor].bits != 0; }
  // Groups of timesteps that the tensor has parameters for.
  std::size_t time_groups(std::size_t tensor) const {
    return calibration && calibration->covers(tensor) ? calibration->groups() : 0;
  }
  std::uint64_t source_row_bytes(std::size_t tensor) const {
    const std::uint64_t columns = formats[tensor].columns;
    return is_quantized(tensor) ? columns * bits(model.tensors()[tensor].dtype) / 8 : columns;
  }
};

// What a block becomes.
struct CodedBlock {
  CodedRows rows;
  std::uint64_t count;               // of rows
  std::span<const float> time_bias;  // [time groups, rows]
  ActivationScales activations;      // of the tensor, if it is time-aware
};

// Takes the blocks of a model, and makes a directory of them. Thread-safe: blocks may come in any order, but in Parquet each is
// taken only after those before it.
class QuantizedOutput {
 public:
  struct File {
    std::string path;
    std::uint64_t bytes;
  };

  QuantizedOutput() = default;
  QuantizedOutput(const QuantizedOutput&) = delete;
  QuantizedOutput& operator=(const QuantizedOutput&) = delete;
  virtual ~QuantizedOutput() = default;

  // Whether an earlier run has written this block, so that it need not come. Asked once for each block.
  virtual bool has(std::size_t block) = 0;

  virtual Result<void> write(std::size_t block, const CodedBlock& coded) = 0;
  virtual Result<void> write_kept(std::size_t block, std::span<const std::byte> bytes) = 0;

  // Nothing more will come: wakes those who wait for their turn.
  virtual void stop() {}

  // Puts the directory in place.
  virtual Result<void> commit() = 0;

  virtual std::vector<File> files() const = 0;
};

// With `keep`, what was written is kept if the work breaks off.
Result<std::unique_ptr<QuantizedOutput>> create_mlx_output(const std::string& directory, const QuantizeWork& work, bool sync,
                                                           bool keep);
Result<std::unique_ptr<QuantizedOutput>> create_parquet_output(const std::string& directory, const QuantizeWork& work, bool sync,
                                                               bool keep);

// All files of weights in MLX's format, with the bits that layers have.
Result<std::uint64_t> mlx_bytes(const QuantizeWork& work);

// The key of the work that made what is in a directory; empty when nothing whole is there.
std::string finished_mlx_key(const std::string& directory);
std::string finished_parquet_key(const std::string& directory);

}  // namespace ballast
