#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/progress.h>
#include <ballast/quality.h>
#include <ballast/quantize_config.h>
#include <ballast/tensor.h>

namespace ballast {

struct QuantizeOptions {
  QuantizeConfig config;
  bool sync = true;     // wait until the disk has it all
  bool resume = false;  // if the work breaks off, keep what is done beside the output, as .incomplete; go on from there if it is
                        // about the same files and config
  Progress progress;
};

// What became of one tensor.
struct LayerReport {
  std::string name;
  DType dtype = DType::kF32;  // of the source
  std::vector<std::uint64_t> shape;
  unsigned bits = 0;
  unsigned group_size = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;  // of codes, scales and offsets as they are stored, before any compression
  unsigned planned_bits = 0;  // fewer than `bits` if these were not good enough
  Quality quality;
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
  bool passed = true;       // every layer is as good as min_accuracy asks
  bool was_done = false;    // an earlier run had finished; nothing was done, and layers are not told
  std::vector<std::string> warnings;

  double compression_ratio() const { return bytes == 0 ? 1 : static_cast<double>(source_bytes) / static_cast<double>(bytes); }
};

// Quantizes a model into a directory, block by block in bounded memory. The files beside the weights go along. The bytes depend on
// the model and the config alone. With fail_fast a layer below min_accuracy is kBelowMinimum, and nothing is written.
Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options = {});

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
