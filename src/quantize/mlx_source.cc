#include <algorithm>
#include <map>
#include <set>

#include "base/fail.h"
#include "base/text.h"
#include "convert/kernels.h"
#include "quantize/mlx_layers.h"
#include "quantize/quantized_source.h"

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
    index_tensors();
    for (std::size_t i = 0; i < layers_.size(); ++i) layer_of_.emplace(layers_[i].packed->name, i);
    return {};
  }

  QuantizeFormat format() const override { return QuantizeFormat::kMlx; }
  const std::string& directory() const override { return model_.directory(); }
  std::span<const QuantizedTensor> tensors() const override { return tensors_; }
  std::uint64_t file_size() const override { return model_.file_size(); }
  std::vector<std::string> files() const override {
    std::vector<std::string> paths;
    for (const ModelFile& file : model_.files()) paths.push_back(file.path);
    return paths;
  }

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

  Result<void> read_kept(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const override {
    return model_.read_into(name, offset, out);
  }

 private:
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
