#include "jobs/lora/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/config.h"
#include "model/identity.h"
#include "model/state.h"
#include "scheme/layer.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr std::string_view kDiffusersConfig = "lora_adapter_metadata";  // in the header

// The tensors of one module.
struct ModuleParts {
  LoraName name;  // of the first tensor
  const TensorInfo* down = nullptr;
  const TensorInfo* up = nullptr;
  const TensorInfo* alpha = nullptr;

  const TensorInfo& any() const { return down != nullptr ? *down : up != nullptr ? *up : *alpha; }
};

class LoraOpener {
 public:
  LoraOpener(Model model, double scale) : scale_(scale), adapter_(std::make_shared<LoraAdapter>(std::move(model))) {}

  Result<std::shared_ptr<const LoraAdapter>> run(const OpenOptions& options) {
    for (const TensorInfo& tensor : model().tensors()) TRY(add(tensor));
    if (modules_.empty() && adapter_->wholes.empty()) {
      return fail(Errc::kUnsupported, "{}: no tensors of an adapter (LoRA)", shown(model().path()));
    }
    adapter_->files.assign(model().files().begin(), model().files().end());
    TRY(read_identity());
    TRY(read_config(options));
    for (const auto& [key, parts] : modules_) TRY(add_pair(parts));
    return std::shared_ptr<const LoraAdapter>(std::move(adapter_));
  }

 private:
  const Model& model() const { return adapter_->model; }

  Result<void> add(const TensorInfo& tensor) {
    LoraName name = parse_lora_name(tensor.name);
    if (name.part == LoraPart::kRefused) {
      return fail_tensor(model(), tensor, Errc::kUnsupported, "{}, which cannot be merged", name.why);
    }
    adapter_->is_peft |= name.is_peft;
    if (name.part == LoraPart::kWhole) {
      adapter_->wholes.push_back({.name = std::move(name), .tensor = &tensor});
      return {};
    }
    ModuleParts& parts = modules_[{name.role, name.module}];
    const bool is_down = name.part == LoraPart::kDown || name.part == LoraPart::kEmbeddingDown;
    const TensorInfo*& part = name.part == LoraPart::kAlpha ? parts.alpha : is_down ? parts.down : parts.up;
    if (part != nullptr) return fail_tensor(model(), tensor, Errc::kCorrupt, "the same matrix as {}", quote(part->name));
    part = &tensor;
    if (is_down || parts.name.module.empty()) parts.name = std::move(name);
    return {};
  }

  // What has no ETag and is not a file is identified by its content.
  Result<void> read_identity() {
    const auto files = describe_files(model());
    adapter_->identity = fmt::format("\nlora {}\n{}", scale_, files.value_or(""));
    for (std::uint32_t i = 0; !files && i < model().files().size(); ++i) {
      adapter_->identity += TRY(sha256(ModelAccess::source(model(), i)));
    }
    return {};
  }

  // adapter_config.json, which only PEFT writes.
  Result<void> read_config(const OpenOptions& options) {
    const bool is_needed = adapter_->is_peft || std::ranges::any_of(modules_, [](const auto& module) {
                             return module.second.name.role.empty() && module.second.alpha == nullptr;
                           });
    if (!is_needed) return {};
    const Folder* const given = ModelAccess::folder(model());
    const Folder folder = given != nullptr ? *given : Folder(parent_path(model().files().front().path), read_options(options));
    const std::string path = join_path(folder.path(), kLoraConfigFile);
    const auto text = TRY(folder.read_text(kLoraConfigFile));
    if (!text) return fail(Errc::kNotFound, "{}: not found; its lora_alpha is needed to scale the adapter", shown(path));
    auto config = LoraConfig::parse(*text, "");
    if (!config) return fail_at(shown(path), config.error());
    if (!*config) return fail(Errc::kCorrupt, "{}: lora_alpha is missing", shown(path));
    config_ = std::move(*config);
    adapter_->fan_in_fan_out = config_->fan_in_fan_out();
    adapter_->files.push_back({.path = path, .size = text->size()});
    adapter_->identity += *text;
    return {};
  }

  // What the config says of a component.
  Result<const LoraConfig*> config_of(const std::string& role) {
    if (config_) return &*config_;
    const auto text = model().metadata().find(kDiffusersConfig);
    if (text == model().metadata().end() || role.empty()) return nullptr;
    auto known = configs_.find(role);
    if (known == configs_.end()) {
      auto config = LoraConfig::parse(text->second, role + ".");
      if (!config) return fail_at(fmt::format("{}: metadata {}", shown(model().path()), kDiffusersConfig), config.error());
      known = configs_.emplace(role, std::move(*config)).first;
    }
    return known->second ? &*known->second : nullptr;
  }

  Result<void> add_pair(const ModuleParts& parts) {
    const TensorInfo& any = parts.any();
    if (parts.down == nullptr || parts.up == nullptr) {
      return fail_tensor(model(), any, Errc::kCorrupt, "the module has no matrix {}",
                         parts.down == nullptr ? "A (down)" : "B (up)");
    }
    for (const TensorInfo* const part : {parts.down, parts.up}) TRY(check_matrix(*part));
    LoraPair pair{.name = parts.name, .down = parts.down, .up = parts.up};
    const Shape up = pair.up->shape;
    if (up[1] != pair.rank() || std::ranges::any_of(up.subspan(2), [](std::uint64_t dim) { return dim != 1; })) {
      return fail_tensor(model(), *pair.up, Errc::kCorrupt, "shape is {}, {} has rank {}: expected [{}, {}]", to_string(up),
                         quote(pair.down->name), pair.rank(), up[0], pair.rank());
    }
    auto scale = scale_of(pair, parts.alpha);
    if (!scale) return fail_tensor(model(), *pair.down, scale.error().code, "{}", scale.error().message);
    pair.scale = *scale * scale_;
    adapter_->pairs.push_back(std::move(pair));
    return {};
  }

  Result<void> check_matrix(const TensorInfo& tensor) const {
    if (info(tensor.dtype).kind != NumberKind::kFloat || bits(tensor.dtype) < 8) {
      return fail_tensor(model(), tensor, Errc::kUnsupported, "the dtype is {}, a matrix of an adapter must have floats",
                         name(tensor.dtype));
    }
    if (tensor.shape.size() < 2 || tensor.bytes() == 0) {
      return fail_tensor(model(), tensor, Errc::kCorrupt, "shape is {}, expected a matrix", to_string(tensor.shape));
    }
    return {};
  }

  Result<double> scale_of(const LoraPair& pair, const TensorInfo* alpha) {
    const LoraConfig* const config = TRY(config_of(pair.name.role));
    if (alpha == nullptr) return config != nullptr ? config->scale_of(pair.name.module, pair.rank()) : Result<double>(1.0);
    if (config != nullptr) return fail(Errc::kUnsupported, "{} and the config both scale it", quote(alpha->name));
    if (alpha->elements() != 1 || info(alpha->dtype).kind == NumberKind::kComplex) {
      return fail(Errc::kCorrupt, "{} is {} of shape {}, expected one number", quote(alpha->name), name(alpha->dtype),
                  to_string(alpha->shape));
    }
    const double value = TRY(model().read<double>(alpha->name)).front();
    if (!std::isfinite(value)) return fail(Errc::kCorrupt, "{} is not finite", quote(alpha->name));
    return value / static_cast<double>(pair.rank());
  }

  double scale_;
  std::shared_ptr<LoraAdapter> adapter_;
  std::map<std::pair<std::string, std::string>, ModuleParts> modules_;  // by role and module
  std::optional<LoraConfig> config_;
  std::map<std::string, std::optional<LoraConfig>> configs_;  // by role
};

}  // namespace

std::vector<std::string> LoraAdapter::roles() const {
  std::set<std::string> all;
  for (const LoraPair& pair : pairs) all.insert(pair.name.role);
  for (const LoraWhole& whole : wholes) all.insert(whole.name.role);
  return {all.begin(), all.end()};
}

Result<std::shared_ptr<const LoraAdapter>> open_lora(const Lora& lora, const OpenOptions& options) {
  if (!std::isfinite(lora.scale)) return fail(Errc::kInvalidArgument, "{}: the scale is {}", shown(lora.path), lora.scale);
  OpenOptions own = options;
  own.component.clear();
  own.variant.clear();
  Model model = TRY(Model::open(lora.path, own));
  return LoraOpener(std::move(model), lora.scale).run(own);
}

}  // namespace ballast
