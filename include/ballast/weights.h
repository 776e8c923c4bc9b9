#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/open_options.h>
#include <ballast/tensor.h>
#include <ballast/time_aware.h>

namespace ballast {

// How a weight is stored.
struct Storage {
  std::string scheme = "plain";  // plain, mlx, parquet, fp8, gptq and so on
  std::string mode;              // what the scheme distinguishes: "affine" and "mxfp4" of MLX, "block" and "channel" of fp8
  unsigned bits = 0;             // per code; 0 if the weight is not quantized
  unsigned group_size = 0;       // columns that share a scale; 0 if the weight is not quantized
  bool equalized = false;        // columns were scaled by powers of two
};

// "int4 of 64" for MLX and Parquet, "gptq 4-bit of 128" for other schemes, "unquantized".
std::string storage_name(const Storage& storage);

// One logical weight of a model, independent of how it is stored.
struct Weight {
  std::string name;                  // original
  DType dtype = DType::kF32;         // original; for MLX codes the dtype of the scales, or BF16 if these are not floats
  std::vector<std::uint64_t> shape;  // original
  Storage storage;
  std::vector<std::string> tensors;  // names of the stored tensors it consists of; for Parquet the weight's own name
  std::uint64_t rows = 0;            // rows of the stored matrix
  std::uint64_t bytes = 0;           // as stored: codes and parameters, or values
  std::string file;                  // file that holds it, or the first one

  bool is_quantized() const { return storage.bits != 0; }
  std::uint64_t elements() const;
};

class WeightsReader;  // internal: decodes the weights of one scheme

// The logical weights of a model. Use it to open a model that may be quantized. Opening reads headers, configs and side files,
// but no values. All const members are thread-safe.
class Weights {
 public:
  // Opens a SafeTensors or MLX JSON model, quantized or not, by any path or URI that Model::open() accepts, or a Parquet V2
  // Extended directory.
  static Result<Weights> open(const std::string& path, const OpenOptions& options = {});
  // Takes ownership of an open model.
  static Result<Weights> from_model(Model model);

  // The stored tensors as plain weights, whatever they mean.
  static Weights as_stored(Model model);

  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;
  ~Weights();

  const std::string& path() const;
  const std::string& directory() const;     // empty for a single file
  std::string_view scheme() const;          // of the quantized weights; plain if there are none
  bool is_quantized() const;                // at least one weight is quantized
  std::span<const Weight> weights() const;  // the order depends on the scheme but is always the same
  const Weight* find(std::string_view name) const;
  std::vector<ModelFile> files() const;   // weight files, including side files
  std::uint64_t parameter_count() const;  // of the logical weights
  Modality modality() const;
  const std::optional<ModelConfig>& config() const;
  std::span<const std::string> warnings() const;
  // Stored tensors that belong to the quantization, but not to the value of any weight, such as the scales of activations.
  std::span<const std::string> dropped() const;
  const Model* stored() const;  // the stored tensors; null for Parquet
  std::optional<Model> take_stored() &&;

  // First timestep of each group except the first; empty if the model has no parameters that depend on the timestep.
  Result<std::optional<std::vector<double>>> time_boundaries() const;
  // Parameters of the layers for groups of timesteps; empty if the model has none.
  Result<std::optional<TimeAware>> time_aware() const;

  // Reads and decodes a weight. `dtype` is F64, F32, F16 or BF16 for a quantized weight; for others, any dtype that the stored
  // dtype can be converted to.
  Result<Tensor> read(std::string_view name, DType dtype) const;
  // Reads rows [first, first + count) of a quantized weight; `out` must have exactly their size.
  Result<void> read_rows(std::string_view name, std::uint64_t first, std::uint64_t count, DType dtype,
                         std::span<std::byte> out) const;

 private:
  friend const WeightsReader& reader_of(const Weights& weights);
  friend Result<Model> open_stored(const std::string& path, const OpenOptions& options);
  struct State;
  explicit Weights(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns a model whose tensors are the logical weights, decoded when they are read, so that any function that takes a Model also
// works on quantized models. Quantized weights have `dtype`, by default their original dtype (F32 if that has fewer than 16
// bits). The model has no views, unless the weights are plain: then it is the stored model.
Result<Model> decode(Weights weights, std::optional<DType> dtype = {});

// Returns the tensors of a model as they are stored. For Parquet, which stores no tensors, returns the decoded weights.
Result<Model> open_stored(const std::string& path, const OpenOptions& options = {});

}  // namespace ballast
