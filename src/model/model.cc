#include <ballast/model.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "model/locate.h"
#include "model/modality.h"
#include "model/read_config.h"
#include "model/slice.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

std::string_view name(Format format) { return format == Format::kMlxJson ? "mlx-json" : "safetensors"; }

Result<const TensorInfo*> Model::State::get(std::string_view name) const {
  if (const auto position = index.find(tensors, name)) return &tensors[*position];
  return fail(Errc::kNotFound, "{}: no tensor {} among {}{}", escape(path), quote(name), tensors.size(),
              did_you_mean(name, tensors));
}

std::unexpected<Error> Model::State::error_in(const TensorInfo& tensor, Error error) const {
  return fail_at(shown(files[tensor.file].path), std::move(error).at(fmt::format("tensor {}", quote(tensor.name))));
}

// Replaces the tables of the shards by one joined table. The table and index of a single file are moved.
void Model::State::join_shards(JoinedTables joined) {
  for (Shard& shard : shards) {
    files.push_back({.path = without_secrets(shard.path),
                     .size = shard.file_size,
                     .data_start = shard.header.data_start,
                     .metadata = std::move(shard.header.metadata),
                     .has_metadata = shard.header.has_metadata});
    metadata.insert(files.back().metadata.begin(), files.back().metadata.end());
  }
  if (shards.size() == 1) {
    tensors = std::move(shards.front().header.tensors);
    index = std::move(shards.front().header.index);
    return;
  }
  tensors = std::move(joined.tensors);
  index = std::move(joined.index);
  for (Shard& shard : shards) {
    shard.header.tensors = LargeVector<TensorInfo>();  // frees its memory; `= {}` would not
    shard.header.index = {};
  }
}

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::open(const std::string& path, const OpenOptions& options) {
  auto location = locate(path, options);
  if (!location) return std::unexpected(location.error());
  return open_at(path, std::move(*location), options);
}

Result<Model> ModelAccess::open(const std::string& given, Place place, const OpenOptions& options) {
  auto location = locate(std::move(place), read_options(options));
  if (!location) return std::unexpected(location.error());
  return Model::open_at(given, std::move(*location), options);
}

Result<Model> load_pretrained(const std::string& directory, const OpenOptions& options) {
  auto location = locate_pretrained(directory, options);
  if (!location) return std::unexpected(location.error());
  return Model::open_at(directory, std::move(*location), options);
}

Result<Model> Model::open_at(const std::string& path, Location location, const OpenOptions& options) {
  std::vector<Shard> shards;
  for (auto& shard : open_shards(location.files, location.index_path, options)) {
    if (!shard) return std::unexpected(shard.error());
    shards.push_back(std::move(*shard));
  }
  ShardReport report = check_shards(shards, location.index ? &*location.index : nullptr, location.index_path);
  if (!report.contradictions.empty()) return std::unexpected(std::move(report.contradictions.front()));
  Model model = ModelAccess::join(path, std::move(shards), std::move(report.joined));
  State& state = *model.state_;
  state.warnings = std::move(location.warnings);
  std::ranges::move(report.warnings, std::back_inserter(state.warnings));
  if (location.index) state.parameters_by_index = location.index->parameters;
  if (location.folder) {
    auto config = read_config(*location.folder);
    if (!config) return std::unexpected(config.error());
    state.config = std::move(*config);
  }
  state.folder = std::move(location.folder);
  return model;
}

Model ModelAccess::join(const std::string& path, std::vector<Shard> shards, JoinedTables joined) {
  auto state = std::make_unique<Model::State>();
  state->path = without_secrets(path);
  state->shards = std::move(shards);
  state->join_shards(std::move(joined));
  return Model(std::move(state));
}

Result<Model> Model::open_source(std::unique_ptr<Source> source, const std::string& name, const OpenOptions& options) {
  auto shard = read_shard(name, std::move(source), options);
  if (!shard) return std::unexpected(shard.error());
  std::vector<Shard> shards;
  shards.push_back(std::move(*shard));
  return ModelAccess::join(name, std::move(shards));
}

Result<Model> Model::from_bytes(std::span<const std::byte> bytes, const std::string& name, const OpenOptions& options) {
  return open_source(open_memory(bytes), name, options);
}

Result<Model> Model::from_tensors(std::span<const TensorView> tensors, const std::string& name, const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    if (auto checked = check_bytes(tensor); !checked) return fail_at(escape(name), checked.error());
    specs.push_back(
        {.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}});
  }
  auto layout = safetensors::make_layout(specs, metadata);
  if (!layout) return fail(Errc::kInvalidArgument, "{}: {}", escape(name), layout.error().message);
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(layout->offsets[i], tensors[i].bytes.size()); });
  std::vector<std::span<const std::byte>> pieces;
  for (const std::size_t i : order) pieces.push_back(tensors[i].bytes);
  return open_source(open_pieces(std::move(layout->header), std::move(pieces)), name, {});
}

const std::string& Model::path() const { return state_->path; }
const std::string& Model::directory() const {
  static const std::string none;
  return state_->folder ? state_->folder->path() : none;
}
std::span<const ModelFile> Model::files() const { return state_->files; }
std::span<const TensorInfo> Model::tensors() const { return state_->tensors; }
Format Model::format() const { return state_->shards.empty() ? Format::kSafetensors : state_->shards.front().format; }
const Metadata& Model::metadata() const { return state_->metadata; }
const std::optional<ModelConfig>& Model::config() const { return state_->config; }
std::span<const std::string> Model::warnings() const { return state_->warnings; }
Modality Model::modality() const { return detect_modality(state_->metadata, state_->tensors); }

std::uint64_t Model::file_size() const {
  const std::span<const ModelFile> stored = state_->decoded ? state_->decoded->files : files();
  return std::accumulate(stored.begin(), stored.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ModelFile& file) { return sum + file.size; });
}

std::uint64_t Model::parameter_count() const {
  return std::accumulate(tensors().begin(), tensors().end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TensorInfo& tensor) { return sum + tensor.elements(); });
}

std::uint64_t Model::data_bytes() const {
  return std::accumulate(tensors().begin(), tensors().end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TensorInfo& tensor) { return sum + tensor.bytes(); });
}

const TensorInfo* Model::find(std::string_view name) const {
  const auto position = state_->index.find(state_->tensors, name);
  return position ? &state_->tensors[*position] : nullptr;
}

Result<TensorView> Model::view(std::string_view name) const& {
  const auto tensor = state_->get(name);
  if (!tensor) return std::unexpected(tensor.error());
  const auto map = state_->source(**tensor).map();
  if (!map) return state_->error_in(**tensor, map.error());
  return TensorView{.name = (*tensor)->name,
                    .dtype = (*tensor)->dtype,
                    .shape = (*tensor)->shape,
                    .bytes = map->subspan(state_->position(**tensor), (*tensor)->bytes())};
}

Result<std::span<std::byte>> Model::writable_view(std::string_view name) const& {
  const TensorView tensor = TRY(view(name));
  const TensorInfo& info = *find(name);
  if (auto made = state_->source(info).make_writable(state_->position(info), info.bytes()); !made) {
    return state_->error_in(info, made.error());
  }
  return std::span(const_cast<std::byte*>(tensor.bytes.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
                   tensor.bytes.size());
}

Result<Tensor> Model::read(std::string_view name) const { return slice(name, {}); }

Result<void> Model::read_into(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const {
  const auto tensor = state_->get(name);
  if (!tensor) return std::unexpected(tensor.error());
  if (const std::uint64_t bytes = (*tensor)->bytes(); offset > bytes || out.size() > bytes - offset) {
    const Error error{
        .code = Errc::kInvalidArgument,
        .message = fmt::format("cannot read {} bytes at offset {}: the tensor has {} bytes", out.size(), offset, bytes)};
    return state_->error_in(**tensor, error);
  }
  if (auto read = state_->source(**tensor).read_at(state_->position(**tensor) + offset, out); !read) {
    return state_->error_in(**tensor, read.error());
  }
  return {};
}

Result<Tensor> Model::slice(std::string_view name, std::span<const Slice> slices) const {
  const auto tensor = state_->get(name);
  if (!tensor) return std::unexpected(tensor.error());
  const auto plan = plan_slice((*tensor)->shape, (*tensor)->dtype, slices);
  if (!plan) return state_->error_in(**tensor, plan.error());
  Tensor out(std::string(name), (*tensor)->dtype, plan->shape, plan->bytes);
  if (auto read = read_slice(state_->source(**tensor), state_->position(**tensor), *plan, out.bytes()); !read) {
    return state_->error_in(**tensor, read.error());
  }
  return out;
}

Result<void> Model::release(std::string_view name) const {
  const auto tensor = state_->get(name);
  if (!tensor) return std::unexpected(tensor.error());
  if (auto released = state_->source(**tensor).release(state_->position(**tensor), (*tensor)->bytes()); !released) {
    return state_->error_in(**tensor, released.error());
  }
  return {};
}

}  // namespace ballast
