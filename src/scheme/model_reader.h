#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ballast/model.h>

#include "scheme/reader.h"

namespace ballast {

// Base of the readers whose weights are tensors of a model: everything but how quantized weights are found and decoded.
class ModelReader : public WeightsReader {
 public:
  const std::string& path() const override { return model_.path(); }
  const Folder* folder() const override;
  std::vector<ModelFile> files() const override { return {model_.files().begin(), model_.files().end()}; }
  Modality modality() const override { return model_.modality(); }
  const std::optional<ModelConfig>& config() const override { return model_.config(); }
  Metadata metadata() const override { return about_model(model_.metadata()); }
  std::span<const std::string> warnings() const override { return model_.warnings(); }
  const Model* stored() const override { return &model_; }
  std::optional<Model> take_stored() override { return std::move(model_); }
  bool knows_original() const override { return false; }

  void expect_all() const override;
  Result<std::optional<std::vector<double>>> time_boundaries() const override { return std::nullopt; }
  Result<std::optional<TimeAwareTable>> read_time_aware() const override { return std::nullopt; }
  Result<void> read_codes(const Weight& weight, std::uint64_t first, const CodedRows& out) const override;
  Result<void> read_bytes(const Weight& weight, std::uint64_t offset, std::span<std::byte> out) const override;

 protected:
  explicit ModelReader(Model model) : model_(std::move(model)) {}
  const Model& model() const { return model_; }

  // Adds the tensors that are not part of a quantized weight, and indexes all weights for find().
  void add_others(const std::set<const TensorInfo*>& parts) const;

 private:
  Model model_;
};

// A reader of weights that are not quantized.
std::unique_ptr<WeightsReader> open_plain_reader(Model model);

}  // namespace ballast
