#include <algorithm>
#include <map>
#include <set>

#include "base/checked.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/kernels.h"
#include "model/state.h"
#include "scheme/mlx/layers.h"
#include "scheme/reader.h"
#include "scheme/mlx/side_files.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

class MlxSource final : public QuantizedSource {
 public:
  explicit MlxSource(Model model) : model_(std::move(model)) {}

  Result<void> read_table() {
    const auto config = read_quantization_config(model_.directory());
    if (!config) return std::unexpected(config.error());
    if (!*config) {
      return fail(Errc::kUnsupported, "{}: is not quantized: no config says how", escape(model_.path()));
    }
    auto layers = find_mlx_layers(model_, **config);
    if (!layers) return std::unexpected(layers.error());
    layers_ = std::move(*layers);
    for (const MlxLayer& layer : layers_) {
      tensors_.push_back(
          {.name = std::string(layer.packed->name),
           .dtype = layer.dtype,
           .shape = layer.shape,
           .bytes = layer.packed->bytes() + layer.scales->bytes() + (layer.biases != nullptr ? layer.biases->bytes() : 0),
           .rows = layer.rows(),
           .format = layer.format(),
           .file = model_.files()[layer.packed->file].path});
    }
    std::set<const TensorInfo*> belonging;
    for (const MlxLayer& layer : layers_) belonging.insert({layer.packed, layer.scales, layer.biases});
    for (const TensorInfo& tensor : model_.tensors()) {
      if (belonging.contains(&tensor)) continue;
      tensors_.push_back({.name = std::string(tensor.name),
                          .dtype = tensor.dtype,
                          .shape = {tensor.shape.begin(), tensor.shape.end()},
                          .bytes = tensor.bytes(),
                          .format = {.bits = 0},
                          .file = model_.files()[tensor.file].path});
    }
    if (auto checked = check_parameters(); !checked) return checked;
    index_tensors();
    for (std::size_t i = 0; i < layers_.size(); ++i) layer_of_.emplace(layers_[i].packed->name, i);
    return {};
  }

  QuantizeFormat format() const override { return QuantizeFormat::kMlx; }
  const std::string& directory() const override { return model_.directory(); }
  std::span<const QuantizedTensor> tensors() const override { return tensors_; }
  std::uint64_t file_size() const override {
    std::uint64_t bytes = model_.file_size();
    for (const std::string& path : side_files()) bytes += size_of(path);
    return bytes;
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> paths;
    for (const ModelFile& file : model_.files()) paths.push_back(file.path);
    std::ranges::copy(side_files(), std::back_inserter(paths));
    return paths;
  }

  void expect_all() const override { ModelAccess::expect(model_, model_.tensors()); }

  std::string modality() const override {
    const Modality found = model_.modality();
    return found == Modality::kUnknown ? "" : std::string(name(found));
  }

  std::string config() const override { return model_.config() ? model_.config()->json : ""; }

  Result<void> read_rows(std::string_view name, std::uint64_t first, const CodedRows& out) const override {
    const auto found = layer_of_.find(name);
    if (found == layer_of_.end()) return fail(Errc::kNotFound, "{}: no quantized tensor {}", escape(model_.path()), quote(name));
    const MlxLayer* const layer = &layers_[found->second];
    if (layer->quantization.mode != QuantizationMode::kAffine || layer->biases == nullptr) {
      return fail(Errc::kUnsupported, "{}: tensor {}: only affine codes with biases can be compared, these are {}",
                  escape(model_.path()), quote(layer->packed->name), ballast::name(layer->quantization.mode));
    }
    const RowFormat format = layer->format();
    if (auto read = model_.read_into(layer->packed->name, first * format.packed_bytes(), out.packed); !read) return read;
    if (auto read = read_parameters(*layer->scales, first * format.groups(), out.scales); !read) return read;
    return read_parameters(*layer->biases, first * format.groups(), out.offsets);
  }

  Result<void> dequantize(std::string_view name, std::uint64_t first, std::uint64_t count, DType dtype,
                          std::span<std::byte> out) const override {
    const auto found = layer_of_.find(name);
    if (found == layer_of_.end()) return fail(Errc::kNotFound, "{}: no quantized tensor {}", escape(model_.path()), quote(name));
    return read_mlx_rows(model_, layers_[found->second], first, count, dtype, out);
  }

  Result<std::optional<std::vector<double>>> time_boundaries() const override {
    const auto file = open_side_file(model_.directory(), kTimeAware);
    if (!file) return std::unexpected(file.error());
    if (!*file) return std::nullopt;
    TimeAwareTable table;
    if (auto read = read_boundaries(**file, table); !read) return fail_at(escape((*file)->path()), std::move(read.error()));
    return table.boundaries;
  }

  Result<std::optional<TimeAwareTable>> read_time_aware() const override {
    const auto file = open_side_file(model_.directory(), kTimeAware);
    if (!file) return std::unexpected(file.error());
    if (!*file) return std::nullopt;
    TimeAwareTable table;
    if (auto read = read_time_aware_file(**file, table); !read) return fail_at(escape((*file)->path()), std::move(read.error()));
    return table;
  }

  Result<void> read_kept(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const override {
    return model_.read_into(name, offset, out);
  }

 private:
  std::vector<std::string> side_files() const {
    std::vector<std::string> paths;
    for (const std::string_view file : {kTimeAware.file, kEqualization.file}) {
      std::string path = join_path(model_.directory(), file);
      if (exists(path).value_or(false)) paths.push_back(std::move(path));
    }
    return paths;
  }

  // Other bits and groups may make other shapes of the same codes. The index of a model that was made here tells how many values
  // there were.
  Result<void> check_parameters() const {
    const std::string path = join_path(model_.directory(), "model.safetensors.index.json");
    const auto text = read_text(path);
    simdjson::dom::parser parser;
    const auto index = text ? parse_json(parser, *text) : std::unexpected(text.error());
    std::uint64_t told = 0;
    if (!index || (*index)["metadata"]["ballast_key"].error() != simdjson::SUCCESS ||
        (*index)["metadata"]["total_parameters"].get(told) != simdjson::SUCCESS) {
      return {};
    }
    std::uint64_t found = 0;
    for (const QuantizedTensor& tensor : tensors_) found += checked_elements(tensor.shape).value_or(0);
    if (found == told) return {};
    return fail(Errc::kCorrupt, "{}: tells of {} parameters, with the bits and groups of the config there are {}", shown(path),
                told, found);
  }

  static Result<void> read_boundaries(const Model& file, TimeAwareTable& table) {
    const auto boundaries = file.metadata().find("boundaries");
    if (boundaries == file.metadata().end()) return fail(Errc::kCorrupt, "its metadata has no boundaries");
    return table.set_boundaries(boundaries->second);
  }

  Result<void> read_time_aware_file(const Model& file, TimeAwareTable& table) const {
    if (auto read = read_boundaries(file, table); !read) return read;
    for (const TensorInfo& tensor : file.tensors()) {
      const std::size_t dot = tensor.name.rfind('.');
      const auto layer = std::ranges::find(layers_, tensor.name.substr(0, dot), &MlxLayer::name);
      if (dot == std::string_view::npos || layer == layers_.end() || tensor.dtype != DType::kF32) {
        return fail(Errc::kCorrupt, "tensor {}: is {} of no layer", quote(tensor.name), name(tensor.dtype));
      }
      const std::string_view kind = tensor.name.substr(dot + 1);
      const std::vector<std::uint64_t> shape = kind == "time_bias" ? std::vector{std::uint64_t{table.groups()}, layer->rows()}
                                                                   : std::vector{std::uint64_t{table.groups()}};
      if (!std::ranges::equal(tensor.shape, shape)) {
        return fail(Errc::kCorrupt, "tensor {}: has shape {}, expected {}", quote(tensor.name), to_string(tensor.shape),
                    to_string(shape));
      }
      std::vector<float> values(tensor.elements());
      if (auto read = file.read_into(tensor.name, 0, std::as_writable_bytes(std::span(values))); !read) return read;
      auto added = table.add(layer->packed->name, layer->rows(), kind, std::move(values));
      if (!added) return fail_at(fmt::format("tensor {}", quote(tensor.name)), std::move(added.error()));
    }
    return table.check();
  }

  Result<void> read_parameters(const TensorInfo& tensor, std::uint64_t first, std::span<float> out) const {
    const std::uint64_t size = bits(tensor.dtype) / 8;
    if (tensor.dtype == DType::kF32) return model_.read_into(tensor.name, first * size, std::as_writable_bytes(out));
    std::vector<std::byte> bytes(out.size() * size);
    if (auto read = model_.read_into(tensor.name, first * size, bytes); !read) return read;
    to_f32(tensor.dtype, bytes.data(), out.size(), std::as_writable_bytes(out).data(), Stores::kOrdinary);
    return {};
  }

  Model model_;
  std::vector<MlxLayer> layers_;
  std::map<std::string_view, std::size_t> layer_of_;  // by the name of its codes
  std::vector<QuantizedTensor> tensors_;
};

}  // namespace

Result<std::unique_ptr<QuantizedSource>> open_mlx_quantized(const std::string& path) {
  auto model = Model::open(path);
  if (!model) return std::unexpected(model.error());
  auto source = std::make_unique<MlxSource>(std::move(*model));
  if (auto read = source->read_table(); !read) return std::unexpected(read.error());
  return source;
}

}  // namespace ballast
