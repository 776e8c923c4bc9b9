#include "scheme/tensors_scheme.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/matrix.h"
#include "scheme/tensors_writer.h"

namespace ballast {
namespace {

class TensorsSizes final : public SizeModel {
 public:
  explicit TensorsSizes(const TensorsScheme& scheme) : scheme_(scheme) {}

  bool is_exact() const override { return true; }

  Result<std::uint64_t> weight_bytes(const OutputPlan&, const WeightLayout& weight, const CodedBlock&) const override {
    return scheme_.stored_bytes(weight);
  }

  Result<std::uint64_t> fixed_bytes(const OutputPlan& plan) const override {
    std::uint64_t bytes = TRY(tensors_file_bytes(scheme_, plan));
    for (const WeightLayout& weight : plan.weights) {
      if (weight.is_quantized()) bytes -= scheme_.stored_bytes(weight);
    }
    return bytes;
  }

 private:
  const TensorsScheme& scheme_;
};

}  // namespace

std::uint64_t StoredTensor::bytes() const { return product(spec.shape) * bits(spec.dtype) / 8; }

Result<void> TensorsScheme::check_names(const std::string& model, std::span<const WeightLayout> weights) const {
  std::set<std::string> names;
  for (const WeightLayout& weight : weights) {
    if (!weight.is_quantized()) names.insert(weight.name);
  }
  for (const WeightLayout& weight : weights) {
    if (!weight.is_quantized()) continue;
    for (const StoredTensor& stored : stored_tensors(weight)) {
      if (names.insert(stored.spec.name).second) continue;
      return fail(Errc::kUnsupported, "{}: tensor {}: its name clashes with {} when quantized; rename one with convert",
                  escape(model), quote(weight.name), quote(stored.spec.name));
    }
  }
  return {};
}

std::uint64_t TensorsScheme::stored_bytes(const WeightLayout& weight) const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& stored : stored_tensors(weight)) bytes += stored.bytes();
  return bytes;
}

Result<std::unique_ptr<SizeModel>> TensorsScheme::make_size_model() const { return std::make_unique<TensorsSizes>(*this); }

Result<std::unique_ptr<QuantizedWriter>> TensorsScheme::create_writer(const std::string& directory, const OutputPlan& plan,
                                                                      bool sync) const {
  return create_tensors_writer(*this, directory, plan, sync);
}

std::string TensorsScheme::finished_key(const std::string& directory) const { return finished_tensors_key(directory); }
std::string_view TensorsScheme::last_file() const { return kIndexFile; }

}  // namespace ballast
