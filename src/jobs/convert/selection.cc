#include "jobs/convert/selection.h"

#include <algorithm>
#include <map>
#include <ranges>

#include <ballast/convert.h>
#include <ballast/glob.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/layer_names.h"

namespace ballast {
namespace {

bool is_integer(NumberKind kind) { return kind == NumberKind::kSigned || kind == NumberKind::kUnsigned; }

bool same_kind(DType a, DType b) {
  return info(a).kind == info(b).kind || (is_integer(info(a).kind) && is_integer(info(b).kind));
}

std::string_view kind_name(DType dtype) {
  switch (info(dtype).kind) {
    case NumberKind::kBool: return "BOOL";
    case NumberKind::kSigned:
    case NumberKind::kUnsigned: return "integer";
    case NumberKind::kFloat: return "floating-point";
    case NumberKind::kComplex: break;
  }
  return "complex";
}

// Records which patterns of an option matched.
class Patterns {
 public:
  Patterns(std::string_view option, std::vector<std::string> patterns)
      : option_(option), patterns_(std::move(patterns)), used_(patterns_.size()) {}

  bool empty() const { return patterns_.empty(); }

  // The last pattern that matches.
  std::optional<std::size_t> match(std::string_view name) {
    std::optional<std::size_t> found;
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!glob_match(patterns_[i], name)) continue;
      used_[i] = true;
      found = i;
    }
    return found;
  }

  Result<void> check_used() const {
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (!used_[i]) return fail(Errc::kInvalidArgument, "{} {} matches no tensor", option_, quote(patterns_[i]));
    }
    return {};
  }

 private:
  std::string_view option_;
  std::vector<std::string> patterns_;
  std::vector<bool> used_;
};

std::vector<std::string> patterns_of(const std::vector<DTypeRule>& rules) {
  std::vector<std::string> patterns;
  for (const DTypeRule& rule : rules) patterns.push_back(rule.pattern);
  return patterns;
}

Result<DType> target_dtype(const TensorInfo& tensor, std::optional<DType> named, const ConvertOptions& options) {
  if (named && !can_convert(tensor.dtype, *named)) {
    return fail(Errc::kUnsupported, "tensor {}: {} cannot be converted to {}", quote(tensor.name), name(tensor.dtype),
                name(*named));
  }
  if (named) return *named;
  const bool meant = options.dtype && same_kind(tensor.dtype, *options.dtype) && can_convert(tensor.dtype, *options.dtype);
  return meant ? *options.dtype : tensor.dtype;
}

// Applies the first rename that matches, and records it.
void rename(TensorSpec& tensor, std::span<const Rename> renames, std::vector<bool>& used) {
  for (std::size_t i = 0; i < renames.size(); ++i) {
    auto name = apply_rename(renames[i], tensor.name);
    if (!name) continue;
    tensor.name = std::move(*name);
    used[i] = true;
    return;
  }
}

Result<void> check_renames(std::span<const Rename> renames) {
  for (const Rename& rename : renames) {
    const auto stars = std::ranges::count(rename.from, '*');
    if (const auto wanted = std::ranges::count(rename.to, '*'); wanted > stars) {
      return fail(Errc::kInvalidArgument, "rename: the new name {} has more stars ({}) than the old name {} ({})",
                  quote(rename.to), wanted, quote(rename.from), stars);
    }
  }
  return {};
}

// Warns of a dtype for all tensors of its kind, `meant`, if there are none or if some cannot be converted.
void add_warnings(DType dtype, std::uint64_t meant, std::uint64_t unconvertible, Selection& selection) {
  if (meant == 0 && !selection.targets.empty()) {
    selection.warnings.push_back(
        fmt::format("dtype {}: there are no {} tensors to convert; name others by a pattern, such as '*={}'", name(dtype),
                    kind_name(dtype), name(dtype)));
  }
  if (unconvertible == 0) return;
  const std::string keep =
      unconvertible == 1 ? "1 tensor of F6 keeps its dtype" : fmt::format("{} tensors of F6 keep their dtype", unconvertible);
  selection.warnings.push_back(fmt::format("{}, because F6 has no standard packing", keep));
}

// Fails if two tensors would have the same name.
Result<void> check_distinct(const Selection& selection) {
  std::map<std::string_view, std::string_view> sources;  // by the new name
  for (std::size_t i = 0; i < selection.targets.size(); ++i) {
    const std::string_view source = selection.sources[i]->name;
    const auto [other, is_new] = sources.emplace(selection.targets[i].name, source);
    if (is_new) continue;
    return fail(Errc::kInvalidArgument,
                "rename: tensors {} and {} would both be named {}; use a '*' in the new name for each in the old",
                quote(other->second), quote(source), quote(other->first));
  }
  return {};
}

// Whether the dtype of the whole model is wrong for this tensor.
bool would_lose(const TensorInfo& tensor, const ConvertOptions& options) {
  return options.dtype && *options.dtype != tensor.dtype && same_kind(tensor.dtype, *options.dtype) && keeps_dtype(tensor.name);
}

std::string describe_kept(std::span<const std::string_view> kept) {
  return fmt::format(
      "{}{} not converted: rotary frequencies, router corrections and scales keep their dtype unless a pattern names them",
      quote(kept.front()), kept.size() == 1 ? " is" : fmt::format(" and {} more are", kept.size() - 1));
}

}  // namespace

DType float_target(std::string_view name, DType from, const ConvertOptions& options) {
  if (const auto rule = Patterns("dtype", patterns_of(options.dtype_rules)).match(name)) return options.dtype_rules[*rule].dtype;
  const bool is_meant = options.dtype && info(*options.dtype).kind == NumberKind::kFloat && !keeps_dtype(name);
  return is_meant ? *options.dtype : from;
}

std::optional<std::string> apply_rename(const Rename& rename, std::string_view name) {
  constexpr char kStar = '*';
  std::vector<std::string_view> taken;  // by each star
  std::string_view pattern = rename.from;
  const auto literal = [&] {
    const std::string_view piece = pattern.substr(0, pattern.find(kStar));
    pattern.remove_prefix(piece.size());
    return piece;
  };
  const std::string_view first = literal();
  if (!name.starts_with(first)) return std::nullopt;
  name.remove_prefix(first.size());
  while (!pattern.empty()) {
    pattern.remove_prefix(1);
    const std::string_view piece = literal();
    if (pattern.empty() && !name.ends_with(piece)) return std::nullopt;
    const std::size_t at = pattern.empty() ? name.size() - piece.size() : name.find(piece);
    if (at == std::string_view::npos) return std::nullopt;
    taken.push_back(name.substr(0, at));
    name.remove_prefix(at + piece.size());
  }
  if (!name.empty()) return std::nullopt;

  std::string renamed;
  std::size_t star = 0;
  for (const char c : rename.to) {
    if (c == kStar && star < taken.size()) {
      renamed += taken[star++];
    } else {
      renamed += c;
    }
  }
  return renamed;
}

Result<Selection> select_tensors(const Model& model, const ConvertOptions& options) {
  TRY(check_renames(options.renames));
  if (options.dtype && !can_convert(DType::kF32, *options.dtype)) {
    return fail(Errc::kUnsupported, "dtype {}: other dtypes cannot be converted to it; leave the option out to copy tensors",
                name(*options.dtype));
  }
  Patterns include("include", options.include);
  Patterns exclude("exclude", options.exclude);
  Patterns rules("dtype", patterns_of(options.dtype_rules));
  std::vector<bool> renamed(options.renames.size());
  std::uint64_t meant = 0;
  std::uint64_t unconvertible = 0;
  std::vector<std::string_view> kept;
  Selection selection;
  for (const TensorInfo& tensor : model.tensors()) {
    const bool included = include.empty() || include.match(tensor.name);
    const bool excluded = exclude.match(tensor.name).has_value();
    const auto rule = rules.match(tensor.name);
    if (!included || excluded) continue;

    std::optional<DType> named;
    if (rule) named = options.dtype_rules[*rule].dtype;
    if (!named && would_lose(tensor, options)) {
      named = tensor.dtype;
      kept.push_back(tensor.name);
    }
    const auto dtype = target_dtype(tensor, named, options);
    if (!dtype) return fail_at(escape(model.path()), dtype.error());
    if (options.dtype && same_kind(tensor.dtype, *options.dtype)) {
      ++meant;
      if (!named && *dtype != *options.dtype) ++unconvertible;
    }
    TensorSpec target{.name = std::string(tensor.name), .dtype = *dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}};
    rename(target, options.renames, renamed);
    selection.sources.push_back(&tensor);
    selection.targets.push_back(std::move(target));
  }
  for (const Patterns* patterns : {&include, &exclude, &rules}) {
    if (auto used = patterns->check_used(); !used) return fail_at(escape(model.path()), used.error());
  }
  if (const auto unused = std::ranges::find(renamed, false); unused != renamed.end()) {
    const Rename& rename = options.renames[static_cast<std::size_t>(unused - renamed.begin())];
    return fail(Errc::kInvalidArgument, "{}: rename {} matches no tensor", escape(model.path()), quote(rename.from));
  }
  if (auto distinct = check_distinct(selection); !distinct) return fail_at(escape(model.path()), distinct.error());
  if (selection.targets.empty() && !model.tensors().empty()) {
    selection.warnings.emplace_back("no tensor is left to write: all are excluded");
  }
  if (!kept.empty()) selection.notes.push_back(describe_kept(kept));
  if (options.dtype) add_warnings(*options.dtype, meant, unconvertible, selection);
  return selection;
}

}  // namespace ballast
