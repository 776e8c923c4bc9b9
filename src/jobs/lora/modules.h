#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/weights.h>

namespace ballast {

// A module that an adapter names, and a tensor that names it, for messages.
struct WantedModule {
  std::string_view name;
  const TensorInfo* tensor;
};

// The modules of a model, to be found by the names that adapters have for them. Borrows names from the model.
class ModuleNames {
 public:
  explicit ModuleNames(const Weights& weights);

  struct Found {
    std::vector<std::string> modules;  // one for each that was wanted
    std::string note;                  // how names differ from those of the model; empty if they do not
  };
  // Finds the modules that an adapter names in one way. All names may lack the first parts of those in the model, such as
  // "model.", or have more; these are never numbers. With `is_flat`, underscores stand for dots. Fails if a module does not
  // exist, or if two might be meant.
  Result<Found> find(const Model& adapter, std::span<const WantedModule> wanted, bool is_flat) const;

 private:
  // A module without its first parts.
  struct Tail {
    std::string_view module;
    std::size_t left_out;  // bytes of these parts, with the dot

    std::string_view head() const { return module.substr(0, left_out); }
  };
  // In the names of an adapter, `from` at the front stands for `to`; at least one is empty.
  struct Renaming {
    std::string_view from;
    std::string_view to;
  };
  using Tails = std::multimap<std::string, Tail, std::less<>>;

  std::vector<Renaming> renamings(std::string_view wanted, bool is_flat) const;
  std::vector<std::string_view> apply(const Renaming& renaming, std::string_view wanted, bool is_flat) const;
  std::string closest(std::string_view wanted, bool is_flat) const;

  std::string path_;
  std::vector<std::string_view> modules_;
  Tails tails_;
  Tails flat_tails_;
};

}  // namespace ballast
