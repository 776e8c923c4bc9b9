#include "jobs/lora/merge.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/adapter.h"
#include "jobs/lora/changes.h"
#include "jobs/lora/modules.h"
#include "model/state.h"
#include "scheme/decoded_source.h"
#include "scheme/layer.h"
#include "source/uri.h"

namespace ballast {
namespace {

Shape without_ones(Shape shape) {
  while (!shape.empty() && shape.back() == 1) shape = shape.first(shape.size() - 1);
  return shape;
}

// A pair and the weight that it changes.
struct MatchedPair {
  const LoraPair* pair;
  const Weight* weight;

  // The weight is [out, in, …].
  bool fits() const {
    const Shape shape = weight->shape;
    return shape.size() > 1 && pair->up->shape[0] == shape[0] &&
           std::ranges::equal(without_ones(pair->down->shape.subspan(1)), without_ones(shape.subspan(1)));
  }
  // The weight is [in, out].
  bool fits_transposed() const {
    const Shape shape = weight->shape;
    return shape.size() == 2 && pair->down->shape.size() == 2 && pair->up->shape[0] == shape[1] &&
           pair->down->shape[1] == shape[0];
  }
};

// The component of a pipeline that a model is; empty if it is not known to be one.
std::string component_of(const Weights& weights, const OpenOptions& options) {
  if (!options.component.empty()) return options.component;
  std::string folder = weights.directory();
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string name = file_name(folder);
  return has_role(name) ? name : std::string();
}

// Finds what the adapters change.
class LoraMerger {
 public:
  LoraMerger(const Weights& weights, std::string component, const MergedDTypes& dtypes)
      : weights_(weights), names_(weights), component_(std::move(component)), dtypes_(dtypes), cache_(make_lora_cache()) {}

  Result<void> add(const Lora& lora, const OpenOptions& options) {
    const auto adapter = TRY(open_lora(lora, options));
    std::vector<std::string> others;
    std::size_t merged = 0;
    for (const std::string& role : adapter->roles()) {
      if (!component_.empty() && !is_role_of(role, component_)) {
        others.push_back(role);
        continue;
      }
      TRY(add_role(adapter, role));
      ++merged;
    }
    const std::string file = shown(adapter->model.path());
    if (merged == 0) {
      return fail(Errc::kUnsupported, "{}: nothing for the component {}, only for {}", file, component_, fmt::join(others, ", "));
    }
    if (!others.empty()) done_.notes.push_back(fmt::format("{}: left out what is for {}", file, fmt::join(others, ", ")));
    done_.adapters.push_back({.files = adapter->files, .scale = lora.scale});
    done_.identity += adapter->identity;
    return {};
  }

  DecodeOptions take() {
    done_.dtype = dtypes_.decoded;
    return std::move(done_);
  }

 private:
  using Adapter = std::shared_ptr<const LoraAdapter>;

  Result<void> add_role(const Adapter& adapter, const std::string& role) {
    std::vector<const LoraPair*> pairs;
    std::vector<const LoraWhole*> wholes;
    std::vector<WantedModule> wanted;
    for (const LoraPair& pair : adapter->pairs) {
      if (pair.name.role != role) continue;
      pairs.push_back(&pair);
      wanted.push_back({.name = pair.name.module, .tensor = pair.down});
    }
    for (const LoraWhole& whole : adapter->wholes) {
      if (whole.name.role != role) continue;
      wholes.push_back(&whole);
      const std::string_view name = whole.name.module;
      wanted.push_back({.name = name.substr(0, std::min(name.rfind('.'), name.size())), .tensor = whole.tensor});
    }
    const bool is_flat = !pairs.empty() && pairs.front()->name.is_flat;
    const auto found = TRY(names_.find(adapter->model, wanted, is_flat));
    std::set<const Weight*> replaced;  // before the products are added: PEFT also stores embeddings that have both
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      const std::string_view name = wholes[i]->name.module;
      const std::string tensor = found.modules[pairs.size() + i] + std::string(name.substr(name.rfind('.')));
      TRY(replace(adapter, *wholes[i]->tensor, *TRY(weight_of(*adapter, *wholes[i]->tensor, tensor, replaced))));
    }
    std::vector<MatchedPair> matched;
    std::set<const Weight*> seen;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      matched.push_back(
          {.pair = pairs[i], .weight = TRY(weight_of(*adapter, *pairs[i]->down, found.modules[i] + ".weight", seen))});
    }
    TRY(add_pairs(adapter, matched));
    const std::string file = shown(adapter->model.path());
    if (!found.note.empty()) done_.notes.push_back(fmt::format("{}: {}", file, found.note));
    if (!pairs.empty()) {
      done_.notes.push_back(fmt::format("{}: merged into {} weight{}", file, pairs.size(), pairs.size() == 1 ? "" : "s"));
    }
    return {};
  }

  // Fails if the weight does not exist, cannot be changed, or is changed already.
  Result<const Weight*> weight_of(const LoraAdapter& adapter, const TensorInfo& tensor, const std::string& name,
                                  std::set<const Weight*>& seen) const {
    const auto refuse = [&](const std::string& why) {
      return fail_tensor(adapter.model, tensor, Errc::kUnsupported, "{}: tensor {} {}", shown(weights_.path()), quote(name), why);
    };
    const Weight* const weight = weights_.find(name);
    if (weight == nullptr) return refuse("does not exist");
    if (info(weight->dtype).kind != NumberKind::kFloat || bits(weight->dtype) < 8 || weight->dtype == DType::kF64) {
      return refuse(fmt::format("is {}; adapters are merged into floats of 8 to 32 bits", ballast::name(weight->dtype)));
    }
    if (!seen.insert(weight).second) return refuse("is changed by another tensor of the adapter, too");
    return weight;
  }

  Result<void> add_pairs(const Adapter& adapter, std::span<const MatchedPair> matched) {
    const bool may_transpose = adapter->is_peft;
    std::size_t plain = 0;
    std::size_t transposed = 0;
    const MatchedPair* square = nullptr;
    for (const MatchedPair& each : matched) {
      const bool fits = !each.pair->is_embedding() && each.fits();
      const bool fits_transposed = (each.pair->is_embedding() || may_transpose) && each.fits_transposed();
      if (!fits && !fits_transposed) return misfit(*adapter, each);
      if (fits && fits_transposed) {
        square = &each;
      } else if (!each.pair->is_embedding()) {
        ++(fits ? plain : transposed);
      }
      const bool is_transposed = fits_transposed && (!fits || adapter->fan_in_fan_out);
      const std::uint64_t columns = each.weight->elements() / each.weight->shape.front();
      change(*each.weight).changes.push_back(low_rank_change(adapter, *each.pair, is_transposed, columns, cache_));
    }
    const std::size_t against = adapter->fan_in_fan_out ? plain : transposed;
    if (square == nullptr || against == 0) return {};
    return fail_tensor(
        adapter->model, *square->pair->down, Errc::kUnsupported,
        "the weight is square, and fan_in_fan_out is {}, which is wrong for {} other weight{}: cannot tell whether to "
        "transpose it",
        adapter->fan_in_fan_out, against, against == 1 ? "" : "s");
  }

  std::unexpected<Error> misfit(const LoraAdapter& adapter, const MatchedPair& each) const {
    return fail_tensor(adapter.model, *each.pair->down, Errc::kUnsupported, "shapes are {} and {}, {} of {} is {}",
                       to_string(each.pair->down->shape), to_string(each.pair->up->shape), quote(each.weight->name),
                       shown(weights_.path()), to_string(each.weight->shape));
  }

  Result<void> replace(const Adapter& adapter, const TensorInfo& tensor, const Weight& weight) {
    if (!std::ranges::equal(tensor.shape, weight.shape)) {
      return fail_tensor(adapter->model, tensor, Errc::kUnsupported, "replaces {} of {}, but its shape is {} instead of {}",
                         quote(weight.name), shown(weights_.path()), to_string(tensor.shape), to_string(weight.shape));
    }
    if (info(tensor.dtype).kind != NumberKind::kFloat || bits(tensor.dtype) < 8) {
      return fail_tensor(adapter->model, tensor, Errc::kUnsupported, "the dtype is {}, it must have floats", name(tensor.dtype));
    }
    change(weight).changes.push_back(replacing_change(adapter, tensor));
    done_.notes.push_back(fmt::format("{}: replaced {}", shown(adapter->model.path()), quote(weight.name)));
    return {};
  }

  ChangedWeight& change(const Weight& weight) {
    ChangedWeight& changed = done_.changed[weight.name];
    const DType own = weight.is_quantized() ? dtypes_.decoded.value_or(decoded_dtype(weight)) : weight.dtype;
    changed.dtype = dtypes_.changed ? dtypes_.changed(weight) : own;
    return changed;
  }

  const Weights& weights_;
  ModuleNames names_;
  std::string component_;
  const MergedDTypes& dtypes_;
  std::shared_ptr<LoraCache> cache_;
  DecodeOptions done_;
};

}  // namespace

Result<Model> merge_loras(Weights weights, std::span<const Lora> loras, const OpenOptions& options, const MergedDTypes& dtypes) {
  if (loras.empty()) return decode(std::move(weights), dtypes.decoded);
  LoraMerger merger(weights, component_of(weights, options), dtypes);
  for (const Lora& lora : loras) TRY(merger.add(lora, options));
  DecodeOptions merged = merger.take();
  return open_decoded(std::move(weights), std::move(merged));
}

Result<Model> open_merged(const std::string& model, std::span<const Lora> loras, const OpenOptions& options) {
  return merge_loras(TRY(Weights::open(model, options)), loras, options);
}

Result<void> check_merged(const Model& model, std::span<const Lora> loras) {
  const auto& decoded = ModelAccess::decoded(model);
  if (loras.empty() || (decoded && decoded->adapters.size() == loras.size())) return {};
  return fail(Errc::kInvalidArgument, "{}: lora: the model was opened without the adapters; give its path", shown(model.path()));
}

Result<std::vector<Lora>> loras_for(const Component& component, std::span<const Lora> loras, const OpenOptions& options) {
  std::vector<Lora> own;
  for (const Lora& lora : loras) {
    const auto adapter = TRY(open_lora(lora, options));
    const bool is_for_it =
        std::ranges::any_of(adapter->roles(), [&](const std::string& role) { return is_role_of(role, component.name); });
    if (is_for_it) own.push_back(lora);
  }
  return own;
}

Result<void> check_roles(std::span<const Component> components, std::span<const Lora> loras, const OpenOptions& options) {
  for (const Lora& lora : loras) {
    const auto adapter = TRY(open_lora(lora, options));
    for (const std::string& role : adapter->roles()) {
      const std::string file = shown(adapter->model.path());
      if (role.empty()) {
        return fail(Errc::kInvalidArgument, "{}: the adapter does not say for which component it is; give component", file);
      }
      const auto fitting = std::ranges::count_if(
          components, [&](const Component& each) { return each.has_weights && is_role_of(role, each.name); });
      if (fitting == 0) return fail(Errc::kUnsupported, "{}: the pipeline has no component for {}", file, role);
      if (fitting > 1) {
        return fail(Errc::kInvalidArgument, "{}: {} components may be meant by {}; give component", file, fitting, role);
      }
    }
  }
  return {};
}

}  // namespace ballast
