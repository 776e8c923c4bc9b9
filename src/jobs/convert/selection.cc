#include "jobs/convert/selection.h"

#include <algorithm>
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
      return fail(Errc::kInvalidArgument, "rename {} to {}: FROM has {} stars, TO has {}; TO cannot have more",
                  quote(rename.from), quote(rename.to), stars, wanted);
    }
  }
  return {};
}

}  // namespace

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
    return fail(Errc::kUnsupported, "cannot convert to {}", name(*options.dtype));
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
    const bool keeps = !named && options.dtype && *options.dtype != tensor.dtype && same_kind(tensor.dtype, *options.dtype) &&
                       keeps_dtype(tensor.name);
    if (keeps) {
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
  for (std::size_t i = 0; i < renamed.size(); ++i) {
    if (renamed[i]) continue;
    return fail(Errc::kInvalidArgument, "{}: rename {} matches no tensor", escape(model.path()), quote(options.renames[i].from));
  }
  if (options.dtype && meant == 0 && !selection.targets.empty()) {
    selection.warnings.push_back(fmt::format(
        "no tensor has a dtype of the same kind as {}; name tensors by a pattern to convert them anyway", name(*options.dtype)));
  }
  if (!kept.empty()) {
    selection.notes.push_back(fmt::format(
        "{}{} not converted: rotary frequencies, router corrections and scales keep their dtype unless a pattern names them",
        quote(kept.front()), kept.size() == 1 ? " is" : fmt::format(" and {} more are", kept.size() - 1)));
  }
  if (unconvertible > 0) {
    selection.warnings.push_back(fmt::format("{} of F6 keep their dtype, because F6 has no standard packing",
                                             unconvertible == 1 ? "1 tensor" : fmt::format("{} tensors", unconvertible)));
  }
  return selection;
}

}  // namespace ballast
