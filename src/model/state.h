#pragma once

#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <vector>

#include <ballast/model.h>

#include "base/bytes.h"
#include "base/name_index.h"
#include "model/locate.h"
#include "model/shards.h"
#include "source/path/folder.h"

namespace ballast {

// An adapter (LoRA) that is merged into weights when they are read.
struct MergedAdapter {
  std::vector<ModelFile> files;  // with its config
  double scale = 1;
};

// The tensors whose values are computed when they are read: decoded from quantized weights, or merged with adapters.
struct Decoded {
  std::string scheme;  // of the quantized weights; empty if there are none
  std::set<std::string, std::less<>> names;
  std::vector<ModelFile> files;      // that store the weights
  std::vector<std::string> dropped;  // stored tensors that are not part of any weight's value
  std::vector<MergedAdapter> adapters;
  std::vector<std::string> notes;  // what was merged, for the user
};

// The state of a Model. Its member functions are defined in several files.
struct Model::State {
  std::string path;
  std::optional<Folder> folder;  // the model directory; empty for a single file
  std::vector<Shard> shards;
  std::vector<ModelFile> files;     // one per shard
  LargeVector<TensorInfo> tensors;  // of all shards; names and shapes point into the shards
  NameIndex index;                  // for `tensors`
  Metadata metadata;
  std::optional<ModelConfig> config;
  std::vector<std::string> warnings;
  std::optional<std::uint64_t> parameters_by_index;  // see ShardIndex
  std::optional<Decoded> decoded;                    // set if values are computed; `config` may still describe quantized weights

  Result<const TensorInfo*> get(std::string_view name) const;
  const Source& source(const TensorInfo& tensor) const { return *shards[tensor.file].source; }
  std::uint64_t position(const TensorInfo& tensor) const { return files[tensor.file].data_start + tensor.begin; }
  std::unexpected<Error> error_in(const TensorInfo& tensor, Error error) const;

  // Read the values as `dtype`. `shape` is the result's shape and must have as many elements as the tensor.
  Result<void> read_as_into(const TensorInfo& tensor, DType dtype, std::span<std::byte> out, OnLoss on_loss) const;
  Result<Tensor> read_as(const TensorInfo& tensor, DType dtype, std::vector<std::uint64_t> shape, OnLoss on_loss) const;

  void join_shards(JoinedTables joined = {});
};

// Gives other parts of the library access to the files of a model.
struct ModelAccess {
  // Makes a model of tensors that are computed when they are read. `source` presents them as one SafeTensors file; `path` is used
  // in messages.
  static Result<Model> open_virtual(std::unique_ptr<Source> source, const std::string& path, std::optional<Folder> folder,
                                    std::optional<ModelConfig> config, std::vector<std::string> warnings,
                                    std::optional<Decoded> decoded) {
    auto model = Model::open_source(std::move(source), path, {});
    if (!model) return model;
    model->state_->folder = std::move(folder);
    model->state_->config = std::move(config);
    model->state_->warnings = std::move(warnings);
    model->state_->decoded = std::move(decoded);
    return model;
  }
  // Makes a model of open, consistent files. A single file needs no joined tables.
  static Model join(const std::string& path, std::vector<Shard> shards, JoinedTables joined = {});
  static void set_folder(Model& model, Location location, ModelConfig config) {
    model.state_->folder = std::move(location.folder);
    model.state_->config = std::move(config);
    if (location.index) model.state_->parameters_by_index = location.index->parameters;
  }
  static void set_config(Model& model, ModelConfig config) { model.state_->config = std::move(config); }
  // Like Model::open(given), for a path that is already resolved.
  static Result<Model> open(const std::string& given, Place place, const OpenOptions& options);

  // Null for a single file.
  static const Folder* folder(const Model& model) { return model.state_->folder ? &*model.state_->folder : nullptr; }
  static std::optional<std::uint64_t> parameters_by_index(const Model& model) { return model.state_->parameters_by_index; }

  // The weight files, also of a model whose weights are decoded.
  static std::vector<std::string> stored_files(const Model& model) {
    const auto& decoded = model.state_->decoded;
    std::vector<std::string> paths;
    for (const ModelFile& file : decoded ? std::span<const ModelFile>(decoded->files) : model.files()) paths.push_back(file.path);
    return paths;
  }

  static const std::optional<Decoded>& decoded(const Model& model) { return model.state_->decoded; }

  // Whether tensors are decoded from quantized weights.
  static bool is_dequantized(const Model& model) { return decoded(model) && !decoded(model)->scheme.empty(); }

  // All files that the values come from.
  static std::vector<ModelFile> input_files(const Model& model) {
    const auto& decoded = model.state_->decoded;
    if (!decoded) return {model.files().begin(), model.files().end()};
    std::vector<ModelFile> files = decoded->files;
    for (const MergedAdapter& adapter : decoded->adapters) files.insert(files.end(), adapter.files.begin(), adapter.files.end());
    return files;
  }

  static const Source& source(const Model& model, std::uint32_t file) { return *model.state_->shards[file].source; }

  // Where the tensor's data starts in source().
  static std::uint64_t position(const Model& model, const TensorInfo& tensor) { return model.state_->position(tensor); }

  // Reads parts of a tensor; their offsets are relative to it. See Source::read_ranges().
  static Result<void> read_parts(const Model& model, const TensorInfo& tensor, std::vector<Range> parts) {
    for (Range& part : parts) part.offset += model.state_->position(tensor);
    if (auto read = source(model, tensor.file).read_ranges(parts); !read) return model.state_->error_in(tensor, read.error());
    return {};
  }

  // Announces that these tensors will be read next, roughly in this order. See Source::expect().
  template <std::ranges::input_range Tensors>
  static void expect(const Model& model, const Tensors& tensors) {
    std::vector<std::vector<Extent>> extents(model.files().size());
    for (const TensorInfo& tensor : tensors) {
      const std::uint64_t begin = model.state_->position(tensor);
      const std::uint64_t end = begin + tensor.bytes();
      auto& of_file = extents[tensor.file];
      if (!of_file.empty() && of_file.back().end == begin) {
        of_file.back().end = end;
      } else {
        of_file.push_back({.begin = begin, .end = end});
      }
    }
    for (std::uint32_t file = 0; file < extents.size(); ++file) source(model, file).expect(extents[file]);
  }
};

}  // namespace ballast
