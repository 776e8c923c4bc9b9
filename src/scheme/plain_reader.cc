#include "scheme/plain_reader.h"

#include "base/fail.h"
#include "base/text.h"
#include "model/state.h"
#include "scheme/reader.h"

namespace ballast {
namespace {

class PlainReader final : public WeightsReader {
 public:
  explicit PlainReader(Model model) : model_(std::move(model)) {}

  std::string_view scheme() const override { return "plain"; }
  const std::string& path() const override { return model_.path(); }
  const std::string& directory() const override { return model_.directory(); }
  std::vector<ModelFile> files() const override { return {model_.files().begin(), model_.files().end()}; }
  const std::optional<ModelConfig>& config() const override { return model_.config(); }
  std::span<const std::string> warnings() const override { return model_.warnings(); }
  const Model* stored() const override { return &model_; }
  bool knows_original() const override { return true; }
  std::optional<Model> take_plain() override { return std::move(model_); }
  Modality modality() const override { return model_.modality(); }

  void expect_all() const override { ModelAccess::expect(model_, model_.tensors()); }
  Result<std::optional<std::vector<double>>> time_boundaries() const override { return std::nullopt; }
  Result<std::optional<TimeAwareTable>> read_time_aware() const override { return std::nullopt; }

  Result<void> read_codes(const Weight& weight, std::uint64_t, const CodedRows&) const override { return not_quantized(weight); }
  Result<void> read_rows(const Weight& weight, std::uint64_t, std::uint64_t, DType, std::span<std::byte>) const override {
    return not_quantized(weight);
  }
  Result<void> read_bytes(const Weight& weight, std::uint64_t offset, std::span<std::byte> out) const override {
    return model_.read_into(weight.name, offset, out);
  }

 private:
  void list_weights() const override {
    for (const TensorInfo& tensor : model_.tensors()) add(plain_weight(model_, tensor));
    index_weights();
  }

  std::unexpected<Error> not_quantized(const Weight& weight) const {
    return fail(Errc::kInvalidArgument, "{}: tensor {}: is not quantized", escape(model_.path()), quote(weight.name));
  }

  Model model_;
};

}  // namespace

Weight plain_weight(const Model& model, const TensorInfo& tensor) {
  return {.name = std::string(tensor.name),
          .dtype = tensor.dtype,
          .shape = {tensor.shape.begin(), tensor.shape.end()},
          .storage = {},
          .tensors = {std::string(tensor.name)},
          .rows = tensor.shape.empty() ? 1 : tensor.shape.front(),
          .bytes = tensor.bytes(),
          .file = model.files()[tensor.file].path};
}

std::unique_ptr<WeightsReader> open_plain_reader(Model model) { return std::make_unique<PlainReader>(std::move(model)); }

}  // namespace ballast
