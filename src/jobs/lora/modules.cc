#include "jobs/lora/modules.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/unet_names.h"
#include "scheme/layer.h"
#include "source/uri.h"

namespace ballast {
namespace {

std::string flattened(std::string_view name) {
  std::string flat(name);
  std::ranges::replace(flat, '.', '_');
  return flat;
}

bool is_number(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
}

// The lengths of the heads of a name that may be left out: none, and those of parts before layers.0.
std::vector<std::size_t> head_sizes(std::string_view name) {
  std::vector<std::size_t> sizes;
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, end - begin))) break;
    sizes.push_back(begin);
    begin = end + 1;
  }
  if (sizes.empty()) sizes.push_back(0);
  return sizes;
}

}  // namespace

ModuleNames::ModuleNames(const Weights& weights) : path_(weights.path()) {
  std::set<std::string_view> modules;
  for (const Weight& weight : weights.weights()) {
    const std::size_t dot = weight.name.rfind('.');
    if (dot != std::string::npos) modules.insert(std::string_view(weight.name).substr(0, dot));
  }
  modules_.assign(modules.begin(), modules.end());
  for (const std::string_view module : modules_) {
    for (const std::size_t left_out : head_sizes(module)) {
      const std::string_view tail = module.substr(left_out);
      tails_.emplace(tail, Tail{.module = module, .left_out = left_out});
      flat_tails_.emplace(flattened(tail), Tail{.module = module, .left_out = left_out});
    }
  }
  const auto has = [&](std::string_view head) {
    const auto found = std::ranges::lower_bound(modules_, head);
    return found != modules_.end() && found->starts_with(head);
  };
  if (!has("conv_in") || !has("down_blocks")) return;
  for (const std::string_view module : modules_) {
    const std::string original = original_unet_name(module, has);
    if (!original.empty()) flat_tails_.emplace(flattened(original), Tail{.module = module, .left_out = 0});
  }
}

// Those under which one name is that of a module: as it is, then with a head of the model, then without its own.
std::vector<ModuleNames::Renaming> ModuleNames::renamings(std::string_view wanted, bool is_flat) const {
  std::vector<Renaming> found;
  const auto [begin, end] = (is_flat ? flat_tails_ : tails_).equal_range(wanted);
  for (auto tail = begin; tail != end; ++tail) {
    const Renaming renaming{.from = {}, .to = tail->second.head()};
    if (std::ranges::find(found, renaming.to, &Renaming::to) == found.end()) found.push_back(renaming);
  }
  std::ranges::sort(found, {}, [](const Renaming& each) { return std::pair(each.to.size(), each.to); });
  for (const std::size_t size : is_flat ? std::vector<std::size_t>() : head_sizes(wanted)) {
    const bool is_module = size > 0 && std::ranges::binary_search(modules_, wanted.substr(size));
    if (is_module) found.push_back({.from = wanted.substr(0, size), .to = {}});
  }
  return found;
}

// The modules that a name may mean. A name that the renaming does not fit may be that of a module as it is: lm_head.
std::vector<std::string_view> ModuleNames::apply(const Renaming& renaming, std::string_view wanted, bool is_flat) const {
  const auto modules = [&](std::string_view tail, std::string_view head) {
    std::vector<std::string_view> found;
    const auto [begin, end] = (is_flat ? flat_tails_ : tails_).equal_range(tail);
    for (auto each = begin; each != end; ++each) {
      if (each->second.head() == head) found.push_back(each->second.module);
    }
    return found;
  };
  if (wanted.starts_with(renaming.from)) {
    auto found = modules(wanted.substr(renaming.from.size()), renaming.to);
    if (!found.empty()) return found;
  }
  return modules(wanted, {});
}

// "; the closest is 'model.layers.0.mlp.up_proj'", or nothing.
std::string ModuleNames::closest(std::string_view wanted, bool is_flat) const {
  SimilarName similar(wanted);
  std::string_view best;
  for (const std::string_view module : modules_) {
    const std::string known = is_flat ? flattened(module) : std::string(module);
    similar.offer(known);
    if (similar.best() == known) best = module;
  }
  return best.empty() ? std::string() : fmt::format("; the closest is {}", quote(best));
}

Result<ModuleNames::Found> ModuleNames::find(const Model& adapter, std::span<const WantedModule> wanted, bool is_flat) const {
  const auto missing = [&](const WantedModule& module) {
    return fail_tensor(adapter, *module.tensor, Errc::kUnsupported, "{} has no module {}{}", shown(path_), quote(module.name),
                       closest(module.name, is_flat));
  };
  const std::vector<Renaming> candidates = renamings(wanted.front().name, is_flat);
  if (candidates.empty()) return missing(wanted.front());
  const Renaming* chosen = nullptr;
  const WantedModule* unknown = nullptr;  // to the first candidate
  for (const Renaming& candidate : candidates) {
    const auto first =
        std::ranges::find_if(wanted, [&](const WantedModule& module) { return apply(candidate, module.name, is_flat).empty(); });
    if (first != wanted.end()) {
      if (unknown == nullptr) unknown = &*first;
      continue;
    }
    if (chosen != nullptr && chosen->from.size() == candidate.from.size() && !chosen->to.empty()) {
      return fail_tensor(adapter, *wanted.front().tensor, Errc::kUnsupported,
                         "the module {} may be {} or {}; rename the tensors of the adapter", quote(wanted.front().name),
                         quote(apply(*chosen, wanted.front().name, is_flat).front()),
                         quote(apply(candidate, wanted.front().name, is_flat).front()));
    }
    if (chosen == nullptr) chosen = &candidate;
  }
  if (chosen == nullptr) return missing(*unknown);
  Found found;
  for (const WantedModule& module : wanted) {
    const auto modules = apply(*chosen, module.name, is_flat);
    if (modules.size() > 1) {
      return fail_tensor(adapter, *module.tensor, Errc::kUnsupported, "the module {} may be {} or {} of {}", quote(module.name),
                         quote(modules[0]), quote(modules[1]), shown(path_));
    }
    found.modules.emplace_back(modules.front());
  }
  if (!chosen->from.empty() || (!chosen->to.empty() && !is_flat)) {
    found.note = fmt::format("{} of the adapter is {}", quote(wanted.front().name), quote(found.modules.front()));
  }
  return found;
}

}  // namespace ballast
