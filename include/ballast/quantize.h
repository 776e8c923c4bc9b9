#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/convert_model.h>
#include <ballast/error.h>
#include <ballast/lora.h>
#include <ballast/model.h>
#include <ballast/pipeline.h>
#include <ballast/quality.h>
#include <ballast/quantize_config.h>
#include <ballast/tensor.h>
#include <ballast/tokens.h>
#include <ballast/weights.h>
#include <ballast/work.h>

namespace ballast {

struct QuantizeOptions {
  QuantizeConfig config;
  std::string calibration;  // path of a file with activation statistics, see docs/calibration.md; empty: none
  // Calibrates a language model layer by layer with these tokens, instead of a file: the inputs of a layer come from the layers
  // before it as quantized. Borrowed. The statistics are in a file beside `directory` until the work is done. The output may
  // differ between machines, as that of calibrate_model().
  const TokenWindows* calibration_tokens = nullptr;
  std::vector<Lora> loras;  // quantize_path() and quantize_pipeline() merge them; a model must be opened by open_merged()
  bool sync = true;         // flush the output to disk before returning
  // Keep partial output beside `directory`, as .incomplete, if the work is interrupted, and resume from it if the source files
  // and the config are the same.
  bool resume = false;
  bool force = false;  // write into a directory with files that do not belong to the model; they stay
  WorkOptions work;    // `threads` or `memory_limit` of 0: use the value in `config`
};

// The result for one quantized tensor.
struct LayerReport {
  std::string name;
  DType dtype = DType::kF32;  // original
  std::vector<std::uint64_t> shape;
  unsigned bits = 0;
  unsigned group_size = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;               // codes, scales and offsets as stored, before compression
  unsigned planned_bits = 0;             // less than `bits` if the layer needed more bits to reach min_accuracy
  std::string method;                    // auto, rtn, search or hqq; with calibration "weighted search" or gptq
  bool equalized = false;                // columns were scaled before quantizing
  std::optional<double> expected_error;  // with a target size, see SizeFitReport
  Quality quality;
};

// What the bits that were chosen for a target size were expected to give. Errors are √(Σ w·e² / Σ w) over the quantized tensors.
// e is the relative error of the outputs if there are statistics of the inputs, else that of the weights. w is the number of
// parameters, but with statistics, except in output layers, √(p·m) with m the mean of p over such tensors.
struct SizeFitReport {
  std::uint64_t expected_bytes = 0;  // size of the weight files
  double expected_error = 0;         // of up to 256 rows of each tensor
  unsigned uniform_bits = 0;         // the most bits that all tensors could have in this size; 0 if not even 2 fit
  std::uint64_t uniform_bytes = 0;   // what would be expected then
  double uniform_error = 0;
  bool of_outputs = false;      // some tensors have statistics
  std::optional<double> error;  // what is written; empty in a plan, and if an earlier run wrote some of it
};

// How the activation statistics were used.
struct CalibrationReport {
  std::size_t covered = 0;             // layers quantized with statistics
  std::vector<std::string> uncovered;  // layers quantized without statistics
  std::size_t timesteps = 0;           // timesteps used; 0 if the statistics are not per timestep
  std::size_t recorded_timesteps = 0;  // timesteps in the file
  std::size_t time_groups = 1;         // groups of timesteps; layers have separate parameters for each
  std::vector<double> boundaries;      // first timestep of each group except the first
};

struct QuantizeReport {
  std::vector<LayerReport> layers;  // quantized tensors, in model order
  std::uint64_t unquantized = 0;    // tensors left unquantized
  std::uint64_t unquantized_parameters = 0;
  std::uint64_t unquantized_bytes = 0;  // of these values
  std::vector<std::string> files;       // weight files
  std::uint64_t source_bytes = 0;       // size of the weight files read
  std::uint64_t bytes = 0;              // size of the weight files written
  Quality quality;                      // mean over all layers, weighted by parameter count
  double bits_per_weight = 0;           // of the quantized weights, including scales and offsets
  double bits_per_weight_total = 0;     // the same over all tensors, unquantized ones included
  Modality modality = Modality::kUnknown;
  std::optional<CalibrationReport> calibration;
  std::optional<SizeFitReport> size_fit;    // with a target size
  bool passed = true;                       // every layer reaches min_accuracy
  bool up_to_date = false;                  // an earlier run had finished; nothing was written, and `layers` is empty
  std::vector<ComponentReport> components;  // of a pipeline, whose layers have names such as "unet/conv_in.weight"
  std::vector<std::string> not_copied;      // files of the model directory that are not in the output, sorted
  std::vector<std::string> left_out;        // tensors of the model that are not in the output
  std::vector<std::string> notes;           // worth knowing, and harmless, such as how tensors were arranged for mlx-lm
  std::vector<std::string> warnings;

  double compression_ratio() const { return bytes == 0 ? 1 : static_cast<double>(source_bytes) / static_cast<double>(bytes); }
};

// Quantizes a model into a directory, block by block in bounded memory. Copies the files beside the weights. The output bytes
// depend only on the model, the config and the calibration file. With fail_fast, a layer below min_accuracy is
// Errc::kBelowMinimum, and nothing is written. In the MLX format, tensors get the names and shapes that mlx-lm has for the
// model_type of the config; a model_type for which that is not possible is kUnsupported.
Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options = {});

// What quantize_model() would do with one tensor.
struct PlannedLayer {
  std::string name;
  DType dtype = DType::kF32;  // original
  std::vector<std::uint64_t> shape;
  unsigned bits = 0;  // 0: left unquantized
  unsigned group_size = 0;
  std::string method;  // empty if left unquantized
  bool equalized = false;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;               // as stored, before compression
  std::optional<double> expected_error;  // with a target size, see SizeFitReport
};

struct QuantizePlan {
  std::vector<PlannedLayer> layers;  // all tensors, in model order
  std::uint64_t source_bytes = 0;    // size of the weight files that would be read
  std::uint64_t bytes = 0;           // total of all layers
  Modality modality = Modality::kUnknown;
  std::optional<SizeFitReport> size_fit;    // with a target size
  std::string key;                          // hash of the settings and the model's files: equal plans have equal keys
  std::vector<ComponentReport> components;  // of a pipeline
  std::vector<std::string> notes;           // how tensors would be arranged for mlx-lm
  std::vector<std::string> left_out;        // tensors of the model that would not be in the output
};

// Computes what quantize_model() would do, without writing anything. Quantizes layers on trial where the plan depends on the
// values: to choose bits that reach min_accuracy or a target size, and to choose column scales. Otherwise reads no weights.
Result<QuantizePlan> plan_quantize(const Model& model, const std::string& directory, const QuantizeOptions& options = {});

// Quantizes the components of a diffusers pipeline that denoise: transformer, unet, prior, controlnet. The directory has the same
// structure, and appears when all of it is complete. Text encoders, VAE and other components are copied unquantized; to quantize
// one of them, open it with OpenOptions::component. With `resume`, finished components are kept as well.
Result<QuantizeReport> quantize_pipeline(const std::string& pipeline, const std::string& directory,
                                         const QuantizeOptions& options = {}, const OpenOptions& open = {});
Result<QuantizePlan> plan_quantize_pipeline(const std::string& pipeline, const std::string& directory,
                                            const QuantizeOptions& options = {}, const OpenOptions& open = {});

// Quantizes what a path stands for: a model, as open_stored() opens it, or a pipeline.
Result<QuantizeReport> quantize_path(const std::string& source, const std::string& directory, const QuantizeOptions& options = {},
                                     const OpenOptions& open = {});

struct ValidateOptions {
  OpenOptions open;         // for the quantized model
  std::vector<Lora> loras;  // validate_path() and validate_pipeline() merge them into the original
  double min_accuracy = 0;  // cosine similarity that every layer must reach
  WorkOptions work;
};

// Compares a model with its quantized version on disk, which may have been written by another program in a supported format.
// Unquantized tensors must be identical byte for byte.
Result<QuantizeReport> validate_model(const Model& original, const std::string& quantized, const ValidateOptions& options = {});

// Compares a pipeline with what quantize_pipeline() wrote. `open` is for the original. Components that are not quantized must be
// identical.
Result<QuantizeReport> validate_pipeline(const std::string& original, const std::string& quantized,
                                         const ValidateOptions& options = {}, const OpenOptions& open = {});

// Validates against what a path stands for: a model, as open_stored() opens it, or a pipeline.
Result<QuantizeReport> validate_path(const std::string& original, const std::string& quantized,
                                     const ValidateOptions& options = {}, const OpenOptions& open = {});

struct DequantizeOptions {
  OpenOptions open;
  std::optional<DType> dtype;  // F64, F32, F16 or BF16; default: the original dtype of each tensor
  SinkOptions sink;
  bool force = false;  // as in ConvertOptions
  WorkOptions work;
};

// Writes the dequantized weights to `path`. Of a pipeline, dequantizes the quantized components and copies the others, as
// quantize_pipeline() does; create_sink() describes which paths are accepted. For MLX models the values are
// bit-identical to those of mlx.core.dequantize on a CPU.
Result<ConvertReport> dequantize_model(const std::string& quantized, const std::string& path,
                                       const DequantizeOptions& options = {});

struct QuantizeLayerOptions {
  unsigned bits = 4;
  unsigned group_size = 64;
  QuantizeMethod method = QuantizeMethod::kAuto;
  QuantizeFormat format = QuantizeFormat::kParquet;  // Parquet stores zero points, MLX stores biases
  std::vector<float> importance;                     // one weight per column; empty: all equal
  unsigned threads = 0;                              // 0: one per core
};

// One quantized matrix. Its shape is [first dimension, product of the others] for Parquet, [product of the others, last
// dimension] for MLX.
struct QuantizedLayer {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  unsigned bits = 0;
  unsigned group_size = 0;
  QuantizeFormat format = QuantizeFormat::kParquet;
  std::vector<std::byte> packed;  // a bit stream of codes per row, lowest bits first; each row starts at a byte boundary
  std::vector<float> scales;      // one per group, row by row
  std::vector<float> offsets;     // one per group: (q - offset) * scale for Parquet, q * scale + offset for MLX
  Quality quality;

  std::vector<float> dequantize() const;
};

// Quantizes one tensor in memory.
Result<QuantizedLayer> quantize_layer(const TensorView& weights, const QuantizeLayerOptions& options = {});

}  // namespace ballast
