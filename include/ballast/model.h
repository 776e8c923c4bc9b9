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
  // Where the tensor data starts; offsets in TensorInfo are relative to it. For MLX JSON, offsets are those that the values would
  // have as packed binary data, and this is 0.
  std::uint64_t data_start = 0;
  Metadata metadata;
  bool has_metadata = false;  // true also for metadata without entries
};

// What to do with values that a conversion would change, as described at ConversionLoss.
enum class OnLoss {
  kRefuse,  // fail with the number of such values and the index of the first
  kAllow,
};

enum class Modality { kUnknown, kText, kCode, kImage, kAudio };
std::string_view name(Modality modality);

struct Location;  // internal
class Source;     // internal

// The stored tensors of one model, in one file or many shards, under one table of names. Opening reads only the headers, except
// for MLX JSON, which is text and is scanned once. Const members are thread-safe.
class Model {
 public:
  // Opens a SafeTensors file, MLX JSON (`*.mlx`), an index (`*.index.json`) or a model directory. In a directory it uses the
  // index, else a set of shards, else model.safetensors, weights.safetensors, weights.mlx or all other SafeTensors files; see
  // docs/design.md. `path` may also be a URI: https://…, s3://bucket/…, hf://org/repo[@revision][/file]; see docs/remote.md.
  static Result<Model> open(const std::string& path, const OpenOptions& options = {});

  // Opens a file in memory. `bytes` must outlive the model. `name` is used as the path: in messages, and to tell the format by
  // its suffix.
  static Result<Model> from_bytes(std::span<const std::byte> bytes, const std::string& name = "<memory>",
                                  const OpenOptions& options = {});

  // Makes a model of tensors in memory, which must outlive it. tensors() has the order that a SafeTensors file would have. view()
  // is not available.
  static Result<Model> from_tensors(std::span<const TensorView> tensors, const std::string& name = "<memory>",
                                    const Metadata& metadata = {});

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& path() const;              // as passed to open(), without the secrets of a URI
  const std::string& directory() const;         // where config.json and companion files are; empty for a single file
  Format format() const;                        // the same for all files
  std::span<const ModelFile> files() const;     // sorted by name
  std::uint64_t file_size() const;              // total of all files
  std::span<const TensorInfo> tensors() const;  // sorted by file, then by offset
  const TensorInfo* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  std::uint64_t parameter_count() const;  // total number of elements
  std::uint64_t data_bytes() const;
  const Metadata& metadata() const;  // merged from all files; for a key with different values, the first file's value
  const std::optional<ModelConfig>& config() const;
  Modality modality() const;
  std::span<const std::string> warnings() const;  // problems that did not prevent opening

  // Returns the tensor's bytes in the mapped file, without a copy, valid while the model lives. Accessing them after another
  // process has truncated the file raises SIGBUS; read() and slice() return an error instead. Not available for MLX JSON.
  Result<TensorView> view(std::string_view name) const&;
  Result<TensorView> view(std::string_view name) && = delete;

  // The bytes of view(), writable. Changes stay in this process, where all views of the tensor see them; the file does not
  // change. Only mapped files have writable views.
  Result<std::span<std::byte>> writable_view(std::string_view name) const&;
  Result<std::span<std::byte>> writable_view(std::string_view name) && = delete;

  // Copies the tensor with pread. A file that was truncated since open() is an error.
  Result<Tensor> read(std::string_view name) const;
  // Copies the values as T, which is float, double or an integer. Converts as read_as() does: `model.read<float>(name)` works for
  // BF16, F16, F32 and integers.
  template <class T>
  Result<std::vector<T>> read(std::string_view name, OnLoss on_loss = OnLoss::kRefuse) const {
    const TensorInfo* const tensor = find(name);
    std::vector<T> values(tensor == nullptr ? 0 : tensor->elements());
    auto read = read_as_into(name, dtype_for<T>(), std::as_writable_bytes(std::span(values)), on_loss);
    if (!read) return std::unexpected(std::move(read.error()));
    return values;
  }
  // Copies `out.size()` bytes of the tensor, starting at its byte `offset`.
  Result<void> read_into(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;
  // Copies a slice and reads little more than its bytes. Dimensions without a slice are copied whole. Elements smaller than a
  // byte can be sliced only where every run starts and ends on a byte boundary.
  Result<Tensor> slice(std::string_view name, std::span<const Slice> slices) const;

  // Copies the values as another dtype, on all cores. F6 and C64 convert only to themselves.
  Result<Tensor> read_as(std::string_view name, DType dtype, OnLoss on_loss = OnLoss::kRefuse) const;
  // Like read_as(), into `out`, which must have exactly the size of the result.
  Result<void> read_as_into(std::string_view name, DType dtype, std::span<std::byte> out, OnLoss on_loss = OnLoss::kRefuse) const;
  // Copies the values as an F32 matrix: the first dimension by the product of the others. A vector [n] becomes [n, 1], a scalar
  // [1, 1].
  Result<Tensor> read_2d(std::string_view name, OnLoss on_loss = OnLoss::kRefuse) const;
  Result<std::vector<Tensor>> read_all_2d(OnLoss on_loss = OnLoss::kRefuse) const;  // in the order of tensors()

  // Copies all tensors of all files into one block of memory, on several threads. Fails with kUnsupported if the allocator
  // returns null and with kInvalidArgument if its memory is misaligned. A file that was truncated since open() is an error.
  Result<LoadedModel> load_all(const LoadOptions& options = {}) const;

  // Returns the pages of a view to the system. The view stays valid; the next access reads the file again.
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

// Opens a model directory as an inference runtime does. It must contain a config.json and one of model.safetensors.index.json,
// model.safetensors, weights.safetensors and weights.mlx; the first that exists is used. The error lists them all if none exists.
Result<Model> load_pretrained(const std::string& directory, const OpenOptions& options);
inline Result<Model> load_pretrained(const std::string& directory) { return load_pretrained(directory, {}); }

}  // namespace ballast
