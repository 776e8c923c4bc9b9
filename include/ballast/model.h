#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/config.h>
#include <ballast/error.h>
#include <ballast/load.h>
#include <ballast/metadata.h>
#include <ballast/open_options.h>
#include <ballast/slice.h>
#include <ballast/tensor.h>

namespace ballast {

enum class Format { kSafetensors, kMlxJson };
std::string_view name(Format format);  // safetensors, mlx-json

struct ModelFile {
  std::string path;
  std::uint64_t size = 0;
  // Where tensor data begins; TensorInfo counts from here. MLX JSON is counted as if its values lay packed in binary, from 0 on.
  std::uint64_t data_start = 0;
  Metadata metadata;
  bool has_metadata = false;  // it may have some without entries
};

enum class OnLoss {
  kRefuse,  // values that the target cannot keep (see ConversionLoss) are an error that tells how many, and the first
  kAllow,
};

enum class Modality { kUnknown, kText, kCode, kImage, kAudio };
std::string_view name(Modality modality);

struct Location;  // internal: which files a path stands for
class Source;     // internal: bytes, wherever they are

// The weights of one model: one file or many shards, under one table of names. Opening reads headers only, whatever the size of
// the data, except for MLX JSON, which is text and is scanned once. All const members may be called from many threads at once.
class Model {
 public:
  // Opens a SafeTensors file, MLX JSON (`*.mlx`), an index (`*.index.json`) or a model directory. In a directory it takes the
  // index, else a set of shards, else model.safetensors, weights.safetensors, weights.mlx or all other SafeTensors
  // files; see docs/design.md. All of these may be on a server: https://…, s3://bucket/…, hf://org/repo[@revision][/file]; see
  // docs/remote.md.
  static Result<Model> open(const std::string& path, const OpenOptions& options = {});

  // Opens a file held in memory. `bytes` is borrowed; `name` stands for the path, and says what it is as a path does.
  static Result<Model> from_bytes(std::span<const std::byte> bytes, const std::string& name = "<memory>",
                                  const OpenOptions& options = {});

  // A model of tensors in memory, which are borrowed, in the order that SafeTensors has. It has no views.
  static Result<Model> from_tensors(std::span<const TensorView> tensors, const std::string& name = "<memory>",
                                    const Metadata& metadata = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& path() const;              // as given to open(), but for what is secret in a URI
  const std::string& directory() const;         // of the config and other files that belong to it; empty for a lone file
  Format format() const;                        // of all files
  std::span<const ModelFile> files() const;     // in name order
  std::uint64_t file_size() const;              // of all files
  std::span<const TensorInfo> tensors() const;  // by file, then by position in it
  const TensorInfo* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::uint64_t parameter_count() const;  // elements of all tensors
  std::uint64_t data_bytes() const;
  const Metadata& metadata() const;  // of all files; where two disagree, the first file's value
  const std::optional<ModelConfig>& config() const;
  Modality modality() const;
  std::span<const std::string> warnings() const;  // what open() noticed and went on from

  // The tensor's bytes where they are, without a copy, valid while the model lives. Reading them faults pages in; if someone cuts
  // the file short meanwhile, that read raises SIGBUS. read() and slice() never do. MLX JSON has no such bytes.
  Result<TensorView> view(std::string_view name) const&;
  Result<TensorView> view(std::string_view name) && = delete;

  // The bytes of view(), writable. Changes stay in this process, where all views of the tensor see them; the file does not
  // change. Only mapped files have writable views.
  Result<std::span<std::byte>> writable_view(std::string_view name) const&;
  Result<std::span<std::byte>> writable_view(std::string_view name) && = delete;

  // Copies by pread; a file cut short meanwhile is an error.
  Result<Tensor> read(std::string_view name) const;
  // Copies the values as T, converted as in read_as(): `model.read<float>("lm_head.weight")` works for BF16, F16, F32 and
  // integers. T is float, double or an integer.
  template <class T>
  Result<std::vector<T>> read(std::string_view name, OnLoss on_loss = OnLoss::kRefuse) const {
    const TensorInfo* const tensor = find(name);
    std::vector<T> values(tensor == nullptr ? 0 : tensor->elements());
    auto read = read_as_into(name, dtype_for<T>(), std::as_writable_bytes(std::span(values)), on_loss);
    if (!read) return std::unexpected(std::move(read.error()));
    return values;
  }
  // Copies `out.size()` bytes of the tensor, from its byte `offset` on.
  Result<void> read_into(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;
  // Copies a part, reading little more than the bytes it needs. Dimensions past the last slice are taken whole. Elements
  // smaller than a byte can be sliced where every run of them begins and ends on a byte.
  Result<Tensor> slice(std::string_view name, std::span<const Slice> slices) const;

  // Copies the values as another dtype, on all cores. F6 and C64 convert to nothing but themselves.
  Result<Tensor> read_as(std::string_view name, DType dtype, OnLoss on_loss = OnLoss::kRefuse) const;
  // Likewise, to exactly the bytes of `out`.
  Result<void> read_as_into(std::string_view name, DType dtype, std::span<std::byte> out, OnLoss on_loss = OnLoss::kRefuse) const;
  // The values as an F32 matrix: the first dimension by the product of all others. A vector [n] is [n, 1], a scalar [1, 1].
  Result<Tensor> read_2d(std::string_view name, OnLoss on_loss = OnLoss::kRefuse) const;
  Result<std::vector<Tensor>> read_all_2d(OnLoss on_loss = OnLoss::kRefuse) const;  // in the order of tensors()

  // Copies all tensors of all files into one piece of memory, in large blocks on several threads; a file cut short meanwhile is
  // an error. An allocator that has too little memory gives kUnsupported, one that breaks its contract kInvalidArgument.
  Result<LoadedModel> load_all(const LoadOptions& options = {}) const;

  // Gives the memory of a view's pages back to the system; the view stays valid and reads the file again.
  Result<void> release(std::string_view name) const;

 private:
  struct State;
  friend struct ModelAccess;
  explicit Model(std::unique_ptr<State> state);
  static Result<Model> open_at(const std::string& path, Location location, const OpenOptions& options);
  static Result<Model> open_source(std::unique_ptr<Source> source, const std::string& name, const OpenOptions& options);
  friend Result<Model> load_pretrained(const std::string& directory, const OpenOptions& options);
  std::unique_ptr<State> state_;
};

// Opens a model directory that must have a config.json, as an inference runtime would: model.safetensors.index.json, then
// model.safetensors, weights.safetensors, weights.mlx. Fails with the names of all of them when none is there.
Result<Model> load_pretrained(const std::string& directory, const OpenOptions& options);
inline Result<Model> load_pretrained(const std::string& directory) { return load_pretrained(directory, {}); }

}  // namespace ballast
