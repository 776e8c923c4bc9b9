#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/quantize_type.h>

#include "output/output.h"
#include "quantize/rows.h"

namespace ballast {

// Rows and columns of Strategy::kBlock.
inline constexpr unsigned kScaleBlock = 128;

// How one weight is stored: rows of codes with their parameters, or the source's bytes.
struct WeightLayout {
  std::string name;
  DType dtype = DType::kF32;         // of the source
  std::vector<std::uint64_t> shape;  // of the source
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;  // of a row; its bytes if the weight is left unquantized
  unsigned bits = 0;          // 0: left unquantized
  unsigned group_size = 0;    // the columns, if these have one scale
  Affine affine = Affine::kScaleBias;
  DType parameters = DType::kBF16;
  QuantizeType type = QuantizeType::kInt;
  Strategy strategy = Strategy::kGroup;
  PowerRule power_rule = PowerRule::kClipsNothing;
  bool is_aligned = false;             // RowFormat::is_aligned
  float whole_scale = 0;               // RowFormat::whole_scale
  std::vector<float> restore;          // RowFormat::restore, or nothing
  std::size_t time_groups = 0;         // of timesteps that it has parameters for
  bool has_activation_scales = false;  // for each of these

  bool is_quantized() const { return bits != 0; }
  std::uint64_t elements() const;
  // Borrows `restore`.
  RowFormat format() const;
  std::uint64_t source_row_bytes() const { return is_quantized() ? columns * ballast::bits(dtype) / 8 : columns; }
};

// Some rows of one weight: the unit of work, and a row in Parquet. The division depends on the weights alone.
struct TensorBlock {
  std::size_t tensor;  // its number among the weights
  std::uint64_t first_row;
  std::uint64_t rows;
  std::uint32_t number;  // among the blocks of its weight
  std::uint32_t count;   // of these
};
std::vector<TensorBlock> cut_blocks(std::span<const WeightLayout> weights);

// Everything about a quantized output that is known before writing begins. Computed once.
struct OutputPlan {
  std::string model_path;             // for messages
  std::vector<WeightLayout> weights;  // in the order of the model
  std::vector<TensorBlock> blocks;    // likewise
  unsigned bits = 4;                  // from the settings, for formats that store defaults
  unsigned group_size = 64;
  QuantizeType type = QuantizeType::kInt;
  bool is_symmetric = false;
  std::optional<std::vector<double>> time_boundaries;  // if the output is to be time-aware
  bool is_diffusion = false;
  std::string modality;  // empty if it is not known
  std::string settings;  // as JSON
  std::string source;    // which files were read, as JSON
  std::uint64_t source_bytes = 0;
  std::string key;         // hash of the settings and the model's files, stored with the result
  std::string resume_key;  // also covers when the files changed; empty: not resumable
  std::vector<Companion> companions;
  std::vector<std::string> not_copied;                              // files beside the model's weights that are not among them
  Metadata metadata;                                                // of the model
  std::vector<std::pair<std::string, std::string>> config_members;  // names and JSON, to be set in config.json

  std::uint64_t parameter_count() const;
};

// A scale and a zero point of 8 bits for the inputs in each group of timesteps.
struct ActivationScales {
  std::vector<float> scales;
  std::vector<float> zeros;
};

// A quantized block.
struct CodedBlock {
  CodedRows rows;
  std::uint64_t count;               // of rows
  std::span<const float> time_bias;  // [time groups, rows]
  ActivationScales activations;      // of the weight, if it is time-aware
};

// Writes the blocks of an OutputPlan to a directory. Thread-safe: blocks may come in any order, but in Parquet each waits for
// those before it.
class QuantizedWriter {
 public:
  struct File {
    std::string path;
    std::uint64_t bytes;
  };

  QuantizedWriter() = default;
  QuantizedWriter(const QuantizedWriter&) = delete;
  QuantizedWriter& operator=(const QuantizedWriter&) = delete;
  virtual ~QuantizedWriter() = default;

  // Whether an earlier run has written this block, so that it can be skipped. Called once for each block.
  virtual bool has(std::size_t block) = 0;

  virtual Result<void> write(std::size_t block, const CodedBlock& coded) = 0;
  virtual Result<void> write_unquantized(std::size_t block, std::span<const std::byte> bytes) = 0;

  // No more blocks will come: wakes the threads that wait for their turn.
  virtual void stop() {}

  // Puts the directory in place.
  virtual Result<void> commit() = 0;

  virtual std::vector<File> files() const = 0;
};

}  // namespace ballast
