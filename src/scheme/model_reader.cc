#include "scheme/model_reader.h"

#include "base/fail.h"
#include "base/text.h"
#include "model/state.h"

namespace ballast {
namespace {

class PlainReader final : public ModelReader {
 public:
  explicit PlainReader(Model model) : ModelReader(std::move(model)) {}

  std::string_view scheme() const override { return kPlain; }
  bool knows_original() const override { return true; }

  Result<void> read_rows(const Weight& weight, std::uint64_t, std::uint64_t, DType, std::span<std::byte>) const override {
    return fail(Errc::kInvalidArgument, "{}: tensor {}: not quantized", escape(path()), quote(weight.name));
  }

 private:
  void list_weights() const override { add_others({}); }
};

// A tensor that is a weight as it is.
Weight plain_weight(const TensorInfo& tensor, const std::string& file) {
  return {.name = std::string(tensor.name),
          .dtype = tensor.dtype,
          .shape = {tensor.shape.begin(), tensor.shape.end()},
          .storage = {},
          .tensors = {std::string(tensor.name)},
          .rows = tensor.shape.empty() ? 1 : tensor.shape.front(),
          .bytes = tensor.bytes(),
          .file = file};
}

}  // namespace

const Folder* ModelReader::folder() const { return ModelAccess::folder(model_); }

void ModelReader::expect_all() const { ModelAccess::expect(model_, model_.tensors()); }

Result<void> ModelReader::read_codes(const Weight& weight, std::uint64_t, const CodedRows&) const {
  return fail(Errc::kUnsupported, "{}: tensor {}: has no packed weights with scales and biases", escape(path()),
              quote(weight.name));
}

Result<void> ModelReader::read_bytes(const Weight& weight, std::uint64_t offset, std::span<std::byte> out) const {
  return model_.read_into(weight.name, offset, out);
}

void ModelReader::add_others(const std::set<const TensorInfo*>& parts) const {
  for (const TensorInfo& tensor : model_.tensors()) {
    if (!parts.contains(&tensor)) add(plain_weight(tensor, model_.files()[tensor.file].path));
  }
  index_weights();
}

std::unique_ptr<WeightsReader> open_plain_reader(Model model) { return std::make_unique<PlainReader>(std::move(model)); }

}  // namespace ballast
