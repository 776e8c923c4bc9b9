#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/kernels.h"
#include "model/state.h"
#include "scheme/foreign.h"
#include "scheme/mlx/config.h"
#include "scheme/mlx/layers.h"
#include "scheme/mlx/reader.h"
#include "scheme/mlx/side_files.h"
#include "scheme/model_reader.h"
#include "scheme/parameters.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

class MlxReader final : public ModelReader {
 public:
  explicit MlxReader(Model model) : ModelReader(std::move(model)) {}

  Result<void> read_table(const MlxQuantization& config) {
    layers_ = TRY(find_mlx_layers(model(), config));
    std::set<const TensorInfo*> parts;
    for (const MlxLayer& layer : layers_) {
      Weight weight{.name = std::string(layer.packed->name),
                    .dtype = layer.dtype,
                    .shape = layer.shape,
                    .storage = {.scheme = "mlx",
                                .mode = std::string(name(layer.quantization.mode)),
                                .bits = layer.quantization.bits,
                                .group_size = layer.quantization.group_size,
                                .equalized = !layer.restore.empty()},
                    .tensors = {},
                    .rows = layer.rows(),
                    .file = model().files()[layer.packed->file].path};
      for (const TensorInfo* const tensor : {layer.packed, layer.scales, layer.biases}) {
        if (tensor == nullptr) continue;
        parts.insert(tensor);
        weight.tensors.emplace_back(tensor->name);
        weight.bytes += tensor->bytes();
      }
      add(std::move(weight), layer.format());
    }
    add_others(parts);
    return check_parameters();
  }

  std::string_view scheme() const override { return "mlx"; }

  std::vector<ModelFile> files() const override {
    std::vector<ModelFile> files = ModelReader::files();
    for (const std::string_view name : {kTimeAware.file, kEqualization.file}) {
      if (folder() == nullptr || !folder()->has(name).value_or(false)) continue;
      std::string path = join_path(folder()->path(), name);
      const std::uint64_t size = size_of(path);
      files.push_back({.path = std::move(path), .size = size});
    }
    return files;
  }

  bool has_codes(const Weight& weight) const override {
    const MlxLayer& layer = layer_of(weight);
    return layer.quantization.mode != QuantizationMode::kAffine || layer.biases != nullptr;
  }

  Result<void> read_codes(const Weight& weight, std::uint64_t first, const CodedRows& out) const override {
    const MlxLayer& layer = layer_of(weight);
    if (!has_codes(weight)) {
      return fail(Errc::kUnsupported, "{}: tensor {}: affine weights without biases have no comparable codes", escape(path()),
                  quote(weight.name));
    }
    const RowFormat& rows = format(weight);
    TRY(model().read_into(layer.packed->name, first * rows.packed_bytes(), out.packed));
    TRY(read_parameters(*layer.scales, rows.parameters, first * rows.groups(), out.scales));
    if (layer.biases != nullptr) return read_parameters(*layer.biases, rows.parameters, first * rows.groups(), out.offsets);
    std::ranges::fill(out.offsets, 0.0F);
    return {};
  }

  Result<void> read_rows(const Weight& weight, std::uint64_t first, std::uint64_t count, DType dtype,
                         std::span<std::byte> out) const override {
    return read_mlx_rows(model(), layer_of(weight), first, count, dtype, out);
  }

  Result<std::vector<std::string>> check_values() const override {
    std::vector<std::string> found;
    for (const MlxLayer& layer : layers_) {
      const DType dtype = layer.format().parameters;
      for (const TensorInfo* const tensor : {layer.scales, layer.biases}) {
        if (tensor == nullptr) continue;
        std::ranges::move(TRY(check_scales(model(), *tensor, dtype, ZeroScale::kAllowed)), std::back_inserter(found));
      }
    }
    return found;
  }

  Result<std::optional<std::vector<double>>> time_boundaries() const override {
    const auto file = TRY(open_side_file(model(), kTimeAware));
    if (!file) return std::nullopt;
    TimeAwareTable table;
    if (auto read = read_boundaries(*file, table); !read) return fail_at(escape(file->path()), std::move(read.error()));
    return table.boundaries;
  }

  Result<std::optional<TimeAwareTable>> read_time_aware() const override {
    const auto file = TRY(open_side_file(model(), kTimeAware));
    if (!file) return std::nullopt;
    TimeAwareTable table;
    if (auto read = read_time_aware_file(*file, table); !read) return fail_at(escape(file->path()), std::move(read.error()));
    return table;
  }

 private:
  // Layers are the first weights.
  const MlxLayer& layer_of(const Weight& weight) const { return layers_[static_cast<std::size_t>(&weight - weights().data())]; }

  // Wrong bits or group sizes can still give consistent shapes. The index that quantize writes records the number of values.
  Result<void> check_parameters() const {
    const auto expected = ModelAccess::parameters_by_index(model());
    if (!expected) return {};
    std::uint64_t found = 0;
    for (const Weight& weight : weights()) found += weight.elements();
    if (found == *expected) return {};
    return fail(Errc::kCorrupt, "{}: says {} parameters, but with the bits and group sizes of the config there are {}",
                shown(join_path(folder()->path(), kIndexFile)), *expected, found);
  }

  static Result<void> read_boundaries(const Model& file, TimeAwareTable& table) {
    const auto boundaries = file.metadata().find("boundaries");
    if (boundaries == file.metadata().end()) return fail(Errc::kCorrupt, "the metadata has no boundaries");
    return table.set_boundaries(boundaries->second);
  }

  Result<void> read_time_aware_file(const Model& file, TimeAwareTable& table) const {
    TRY(read_boundaries(file, table));
    for (const TensorInfo& tensor : file.tensors()) {
      const std::size_t dot = tensor.name.rfind('.');
      const auto layer = std::ranges::find(layers_, tensor.name.substr(0, dot), &MlxLayer::name);
      if (dot == std::string_view::npos || layer == layers_.end() || tensor.dtype != DType::kF32) {
        return fail(Errc::kCorrupt, "tensor {}: {}, expected an F32 parameter of a layer", quote(tensor.name),
                    name(tensor.dtype));
      }
      const std::string_view kind = tensor.name.substr(dot + 1);
      const std::vector<std::uint64_t> shape = kind == "time_bias" ? std::vector{std::uint64_t{table.groups()}, layer->rows()}
                                                                   : std::vector{std::uint64_t{table.groups()}};
      if (!std::ranges::equal(tensor.shape, shape)) {
        return fail(Errc::kCorrupt, "tensor {}: shape is {}, expected {}", quote(tensor.name), to_string(tensor.shape),
                    to_string(shape));
      }
      std::vector<float> values(tensor.elements());
      TRY(file.read_into(tensor.name, 0, std::as_writable_bytes(std::span(values))));
      auto added = table.add(layer->packed->name, layer->rows(), kind, std::move(values));
      if (!added) return fail_at(fmt::format("tensor {}", quote(tensor.name)), std::move(added.error()));
    }
    return table.check();
  }

  // `dtype` is that of the values: scales of float types are stored as U8.
  Result<void> read_parameters(const TensorInfo& tensor, DType dtype, std::uint64_t first, std::span<float> out) const {
    const std::uint64_t size = bits(dtype) / 8;
    if (dtype == DType::kF32) return model().read_into(tensor.name, first * size, std::as_writable_bytes(out));
    std::vector<std::byte> bytes(out.size() * size);
    TRY(model().read_into(tensor.name, first * size, bytes));
    to_f32(dtype, bytes.data(), out.size(), std::as_writable_bytes(out).data(), Stores::kOrdinary);
    return {};
  }

  std::vector<MlxLayer> layers_;
};

}  // namespace

Result<std::unique_ptr<WeightsReader>> open_mlx_reader(Model& model, bool is_declared) {
  const auto config = mlx_quantization_of(model);
  if (!config && config.error().code == Errc::kUnsupported && is_declared) return nullptr;  // by another quantizer
  if (!config) return std::unexpected(config.error());
  if (!*config) return nullptr;
  TRY(refuse_foreign(model));
  auto reader = std::make_unique<MlxReader>(std::move(model));
  TRY(reader->read_table(**config));
  return reader;
}

}  // namespace ballast
