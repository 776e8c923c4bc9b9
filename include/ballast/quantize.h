#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/convert_model.h>
#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/quality.h>
#include <ballast/quantize_config.h>
#include <ballast/tensor.h>
#include <ballast/weights.h>
#include <ballast/work.h>

namespace ballast {

struct QuantizeOptions {
  QuantizeConfig config;
  std::string calibration;  // a file of statistics of the model's activations: see docs/calibration.md
  bool sync = true;         // wait until the disk has it all
  bool resume = false;  // if the work breaks off, keep what is done beside the output, as .incomplete; go on from there if it is
                        // about the same files and config
  WorkOptions work;     // threads and memory_limit 0: as the config says
};

// What became of one tensor.
struct LayerReport {
  std::string name;
  DType dtype = DType::kF32;  // of the source
  std::vector<std::uint64_t> shape;
  unsigned bits = 0;
  unsigned group_size = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;    // of codes, scales and offsets as they are stored, before any compression
  unsigned planned_bits = 0;  // fewer than `bits` if these were not good enough
  std::string method;         // rtn, search, hqq; with statistics weighted search, or gptq
  bool equalized = false;     // its columns were scaled first
  Quality quality;
};

// What statistics of activations were good for.
struct CalibrationReport {
  std::size_t covered = 0;             // layers that are quantized with them
  std::vector<std::string> uncovered;  // layers that are quantized without
  std::size_t timesteps = 0;           // that were used; 0 if the statistics do not go by timestep
  std::size_t recorded_timesteps = 0;  // that there are
  std::size_t time_groups = 1;         // the layers have parameters for each
  std::vector<double> boundaries;      // the timesteps at which groups begin, without the first
};

struct QuantizeReport {
  std::vector<LayerReport> layers;  // those quantized, in the order of the model
  std::uint64_t kept = 0;           // tensors that stay as they are
  std::vector<std::string> files;   // of weights
  std::uint64_t source_bytes = 0;   // of the files of weights that were read
  std::uint64_t bytes = 0;          // of the files of weights that were written
  Quality quality;                  // of all layers, weighted by their parameters
  double bits_per_weight = 0;       // of the quantized weights, parameters of groups included
  Modality modality = Modality::kUnknown;
  std::optional<CalibrationReport> calibration;
  bool passed = true;     // every layer is as good as min_accuracy asks
  bool was_done = false;  // an earlier run had finished; nothing was done, and `layers` is empty
  std::vector<std::string> warnings;

  double compression_ratio() const { return bytes == 0 ? 1 : static_cast<double>(source_bytes) / static_cast<double>(bytes); }
};

// Quantizes a model into a directory, block by block in bounded memory. The files beside the weights go along. The bytes depend
// on the model and the config alone. With fail_fast a layer below min_accuracy is kBelowMinimum, and nothing is written.
Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options = {});

// What quantize_model() would make of one tensor.
struct PlannedLayer {
  std::string name;
  DType dtype = DType::kF32;  // of the source
  std::vector<std::uint64_t> shape;
  unsigned bits = 0;  // 0: left unquantized
  unsigned group_size = 0;
  std::string method;  // empty if left unquantized
  bool equalized = false;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // as they would be stored, before any compression
};

struct QuantizePlan {
  std::vector<PlannedLayer> layers;  // all tensors, in the order of the model
  std::uint64_t source_bytes = 0;    // of the files of weights that would be read
  std::uint64_t bytes = 0;           // of all layers
  Modality modality = Modality::kUnknown;
  std::string key;  // a hash of the settings and the model's files: equal plans have equal keys
};

// Decides what quantize_model() would do, and writes nothing. Layers are tried as there, to find bits that reach min_accuracy or
// a size, and column scales; a plan without these reads no weights.
Result<QuantizePlan> plan_quantize(const Model& model, const std::string& directory, const QuantizeOptions& options = {});

struct ValidateOptions {
  OpenOptions open;         // of the quantized model
  double min_accuracy = 0;  // the cosine that every layer must have
  WorkOptions work;
};

// Compares a model with what quantize_model() made of it, or anyone in the same formats, as it is on the disk. Tensors that were
// not quantized must be the same to the byte.
Result<QuantizeReport> validate_model(const Model& original, const std::string& quantized, const ValidateOptions& options = {});

struct DequantizeOptions {
  OpenOptions open;
  std::optional<DType> dtype;  // F64, F32, F16 or BF16; by default what each tensor had before
  SinkOptions sink;
  WorkOptions work;
};

// Writes the numbers that a quantized model stands for to `path`, as create_sink() understands it. MLX's are to the bit what
// mlx.core.dequantize gives on a CPU.
Result<ConvertReport> dequantize_model(const std::string& quantized, const std::string& path,
                                       const DequantizeOptions& options = {});

struct QuantizeLayerOptions {
  unsigned bits = 4;
  unsigned group_size = 64;
  QuantizeMethod method = QuantizeMethod::kSearch;
  QuantizeFormat format = QuantizeFormat::kParquet;  // what the parameters are: zero points in Parquet, biases in MLX
  std::vector<float> importance;                     // of every column; empty for all alike
  unsigned threads = 0;                              // 0: one per core
};

// One quantized matrix: [first dimension, all others] in Parquet, [all others, last] in MLX.
struct QuantizedLayer {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  unsigned bits = 0;
  unsigned group_size = 0;
  QuantizeFormat format = QuantizeFormat::kParquet;
  std::vector<std::byte> packed;  // every row is a stream of codes, the lowest bits first, that begins at a byte
  std::vector<float> scales;      // one for each group, row by row
  std::vector<float> offsets;     // (q - offset) * scale in Parquet, q * scale + offset in MLX
  Quality quality;

  std::vector<float> dequantize() const;
};

// Quantizes one tensor in memory.
Result<QuantizedLayer> quantize_layer(const TensorView& weights, const QuantizeLayerOptions& options = {});

}  // namespace ballast
