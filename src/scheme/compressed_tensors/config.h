#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>

#include "base/regex.h"
#include "scheme/declared.h"

namespace ballast {

// The names of a list of modules: exact, or regular expressions, which match from the start of a name.
class CtNames {
 public:
  // An expression that RE2 cannot compile, such as one with a lookahead, makes is_complete() false.
  static Result<CtNames> parse(const Section& section, std::string_view key);

  bool has(std::string_view module) const { return exact_.contains(module); }
  bool matches(std::string_view module) const;
  bool has_class() const { return has_class_; }
  bool is_complete() const { return is_complete_; }

 private:
  std::set<std::string, std::less<>> exact_;  // names of modules, and of classes such as Linear
  std::vector<Regex> patterns_;
  bool has_class_ = false;
  bool is_complete_ = true;
};

enum class CtStrategy : std::uint8_t { kTensor, kChannel, kGroup, kBlock };

// The `weights` of a config group.
struct CtWeights {
  unsigned bits = 8;  // 1 to 8
  bool is_float = false;
  bool is_symmetric = true;
  CtStrategy strategy = CtStrategy::kTensor;
  std::uint64_t group_size = 0;  // columns, for kGroup
  std::uint64_t block_rows = 0;  // and the next: for kBlock
  std::uint64_t block_columns = 0;

  bool operator==(const CtWeights&) const = default;
};

struct CtGroup {
  std::string place;   // for messages
  std::string format;  // its own, or the model's; empty if neither tells
  CtNames targets;
  std::optional<CtWeights> weights;  // empty: only activations are quantized
};

// The section of config.json.
struct CtConfig {
  std::string place;
  std::vector<CtGroup> groups;
  CtNames ignored;
  bool is_compressed = true;       // dense weights may have scales otherwise
  std::optional<bool> has_padded;  // whether words are padded, by the version that wrote them; empty if it is unknown

  static Result<CtConfig> parse(const Declared& declared);

  // The groups that may describe a module, those that name it if there are any. Class names match every module.
  std::vector<const CtGroup*> groups_of(std::string_view module) const;
};

}  // namespace ballast
