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
  std::string scheme = "plain";  // plain, mlx or parquet
  std::string mode;              // of MLX: affine, mxfp4, mxfp8 or nvfp4
  unsigned bits = 0;             // of a code; 0 if the weight is not quantized
  unsigned group_size = 0;       // columns that share a scale; 0 if the weight is not quantized
  bool equalized = false;        // columns were scaled by powers of two
};

// One weight of a model, whatever it is stored as.
struct Weight {
  std::string name;                  // original
  DType dtype = DType::kF32;         // original; of MLX's codes that of their scales, BF16 where these are not floats
  std::vector<std::uint64_t> shape;  // original
  Storage storage;
  std::vector<std::string> tensors;  // the stored tensors that it consists of; in Parquet the weight's own name
  std::uint64_t rows = 0;            // of the matrix that it is stored as, row by row
  std::uint64_t bytes = 0;           // stored: codes and parameters, or values
  std::string file;                  // where it is, or begins

  bool is_quantized() const { return storage.bits != 0; }
  std::uint64_t elements() const;
};

class WeightsReader;  // internal: decodes what one scheme stores

// A model's logical weights: the one way to open a model that may be quantized. Opening reads headers, configs and side files, no
// values. All const members may be called from many threads at once.
class Weights {
 public:
  // A SafeTensors or MLX JSON model, quantized by MLX or not, as Model::open() takes it, or a directory of Parquet V2 Extended.
  static Result<Weights> open(const std::string& path, const OpenOptions& options = {});
  // Takes the model over.
  static Result<Weights> from_model(Model model);

  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;
  ~Weights();

  const std::string& path() const;
  const std::string& directory() const;     // empty for a lone file
  std::string_view scheme() const;          // mlx or parquet, if the model says so; plain otherwise
  bool is_quantized() const;                // some of the weights are
  std::span<const Weight> weights() const;  // the order is that of the scheme, and always the same
  const Weight* find(std::string_view name) const;
  std::vector<ModelFile> files() const;   // of weights, side files included
  std::uint64_t parameter_count() const;  // of logical weights
  Modality modality() const;
  const std::optional<ModelConfig>& config() const;
  std::span<const std::string> warnings() const;
  const Model* stored() const;  // the stored tensors; null for Parquet, which has none
  std::optional<Model> take_stored() &&;

  // The timesteps at which groups begin, without the first group; empty if weights have no parameters for these.
  Result<std::optional<std::vector<double>>> time_boundaries() const;
  // What the layers have for groups of timesteps, if anything.
  Result<std::optional<TimeAware>> time_aware() const;

  // The values of a weight, decoded. F64, F32, F16 or BF16 for a quantized one; any dtype that the values can be converted to
  // for another.
  Result<Tensor> read(std::string_view name, DType dtype) const;
  // Likewise for rows [first, first + count) of a quantized weight; `out` has exactly their size.
  Result<void> read_rows(std::string_view name, std::uint64_t first, std::uint64_t count, DType dtype,
                         std::span<std::byte> out) const;

 private:
  friend const WeightsReader& reader_of(const Weights& weights);
  friend Result<Model> decode(Weights weights, std::optional<DType> dtype);
  friend Result<Model> open_stored(const std::string& path, const OpenOptions& options);
  struct State;
  explicit Weights(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A model whose tensors are the logical weights, decoded when they are read, so that whatever takes a model takes any storage.
// Quantized weights have `dtype`, by default their original one (F32 where that has fewer than 16 bits). It has no views; the
// model of plain weights is the stored one, which has.
Result<Model> decode(Weights weights, std::optional<DType> dtype = {});

// The tensors of a model as they are stored, or the decoded weights of Parquet, which stores no tensors.
Result<Model> open_stored(const std::string& path, const OpenOptions& options = {});

}  // namespace ballast
