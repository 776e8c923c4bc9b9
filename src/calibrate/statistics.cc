#include "calibrate/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

std::vector<std::size_t> evenly_spread(std::size_t count, std::size_t most) {
  std::vector<std::size_t> taken(std::min(count, most));
  if (taken.size() == count) {
    std::iota(taken.begin(), taken.end(), std::size_t{0});
  } else if (most == 1) {
    taken[0] = (count - 1) / 2;
  } else {
    const std::size_t gaps = most - 1;
    for (std::size_t i = 0; i < most; ++i) taken[i] = (i * (count - 1) + gaps / 2) / gaps;
  }
  return taken;
}

UsedTimesteps choose(std::span<const double> timesteps, unsigned most) {
  if (timesteps.empty()) return {.times = {}, .rows = {0}};
  std::vector<std::size_t> ascending(timesteps.size());
  std::iota(ascending.begin(), ascending.end(), std::size_t{0});
  std::ranges::sort(ascending, {}, [&](std::size_t row) { return timesteps[row]; });
  UsedTimesteps used;
  for (const std::size_t i : evenly_spread(timesteps.size(), std::max(most, 1U))) {
    used.rows.push_back(ascending[i]);
    used.times.push_back(timesteps[ascending[i]]);
  }
  return used;
}

// An unquantized tensor has no plan that determines its columns.
bool may_have_columns(const TensorInfo& tensor, const LayerPlan& plan, std::uint64_t columns) {
  if (plan.bits != 0) return columns == plan.columns;
  if (tensor.shape.empty()) return columns == 1;
  return columns == tensor.shape.back() || checked_elements(tensor.shape.subspan(1)) == columns;
}

Result<Imatrix> open_imatrix(const std::string& path) {
  if (is_uri(path)) return fail(Errc::kUnsupported, "{}: an importance matrix must be a local file; download it", shown(path));
  const auto source = open_path(path, {.access = Access::kPread});
  if (!source) return fail_at(escape(path), source.error());
  auto imatrix = read_imatrix(**source);
  if (!imatrix) return fail_at(escape(path), imatrix.error());
  return imatrix;
}

}  // namespace

Result<Statistics> Statistics::open(const std::string& path, unsigned most_timesteps) {
  if (is_imatrix(path)) {
    auto imatrix = TRY(open_imatrix(path));
    return from_imatrix(std::move(imatrix), path);
  }
  auto file = TRY(Model::open(path));
  return from_file(std::move(file), most_timesteps);
}

Result<Statistics> Statistics::from_file(Model file, unsigned most_timesteps) {
  if (file.format() != Format::kSafetensors || file.files().size() != 1) {
    return fail(Errc::kUnsupported, "{}: statistics must be one .safetensors file, not {} of {}", escape(file.path()),
                file.files().size(), name(file.format()));
  }
  auto table = TRY(read_statistics_table(file));
  Statistics statistics(std::move(file), std::move(table), most_timesteps);
  TRY(statistics.find_left_out());
  return statistics;
}

Result<Statistics> Statistics::from_imatrix(Imatrix imatrix, const std::string& path) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : imatrix.tensors) views.push_back(tensor.view());
  auto file = TRY(Model::from_tensors(views, path, {{"format", std::string(kStatisticsFormat)}}));
  auto statistics = TRY(from_file(std::move(file), 1));
  statistics.tensors_ = std::move(imatrix.tensors);
  statistics.possible_names_ = std::move(imatrix.names);
  return statistics;
}

Statistics::Statistics(Model file, StatisticsTable table, unsigned most_timesteps)
    : file_(std::move(file)), table_(std::move(table)), used_(choose(table_.timesteps, most_timesteps)) {
  for (const auto& [weight, found] : table_.weights) names_.push_back(weight);
}

Result<void> Statistics::find_left_out() {
  if (used_.rows.size() == std::max<std::size_t>(table_.timesteps.size(), 1)) return {};
  std::vector<float> counts(table_.timesteps.size());
  for (const auto& [weight, found] : table_.weights) {
    const TensorInfo* const tensor = found[Statistic::kCount];
    if (tensor == nullptr) continue;
    TRY(file_.read_into(tensor->name, 0, std::as_writable_bytes(std::span(counts))));
    const auto has_inputs = [&](std::size_t row) { return counts[row] != 0; };
    if (!std::ranges::any_of(used_.rows, has_inputs) && std::ranges::any_of(counts, [](float count) { return count > 0; })) {
      left_out_.insert(weight);
    }
  }
  return {};
}

const WeightStatistics* Statistics::find(std::string_view weight) const {
  const auto found = table_.weights.find(weight);
  return found == table_.weights.end() ? nullptr : &found->second;
}

bool Statistics::has_hessian(std::string_view weight) const {
  const WeightStatistics* const found = find(weight);
  return found != nullptr && (*found)[Statistic::kHessian] != nullptr;
}

bool Statistics::has_means(std::string_view weight) const {
  const WeightStatistics* const found = find(weight);
  return found != nullptr && (*found)[Statistic::kMean] != nullptr;
}

std::uint64_t Statistics::columns(std::string_view weight) const {
  const WeightStatistics* const found = find(weight);
  return found == nullptr ? 0 : found->columns;
}

Result<LayerStatistics> Statistics::read(std::string_view weight) const {
  const WeightStatistics* const found = find(weight);
  if (found == nullptr) return fail(Errc::kNotFound, "{}: no statistics for {}", escape(file_.path()), quote(weight));
  return read_layer_statistics(file_, *found, used_);
}

Result<void> Statistics::read_hessian(std::string_view weight, std::uint64_t first_row, std::span<float> rows) const {
  const WeightStatistics* const found = find(weight);
  const TensorInfo* const tensor = found == nullptr ? nullptr : (*found)[Statistic::kHessian];
  if (tensor == nullptr) return fail(Errc::kNotFound, "{}: no Hessian for {}", escape(file_.path()), quote(weight));
  const std::uint64_t width = found->columns;
  const std::string place = fmt::format("{}: tensor {}", escape(file_.path()), quote(tensor->name));
  if (rows.size() % width != 0 || first_row > width || rows.size() / width > width - first_row) {
    return fail(Errc::kInvalidArgument, "{}: {} values from row {} on, but the Hessian has {} rows and columns", place,
                rows.size(), first_row, width);
  }
  TRY(file_.read_into(tensor->name, first_row * width * sizeof(float), std::as_writable_bytes(rows)));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t row = first_row + i / width;
    const std::uint64_t column = i % width;
    if (std::isfinite(rows[i]) && (row != column || rows[i] >= 0)) continue;
    return fail(Errc::kCorrupt, "{}: {} in row {}, column {}", place, rows[i], row, column);
  }
  return {};
}

std::vector<std::string> Statistics::rename(const Renamed& renamed) {
  std::vector<std::string> dropped;
  std::map<std::string, WeightStatistics, std::less<>> weights;
  std::set<std::string, std::less<>> left_out;
  for (const auto& [weight, found] : table_.weights) {
    const auto names = renamed.find(weight);
    for (const std::string& name : names == renamed.end() ? std::vector{weight} : names->second) {
      weights.insert_or_assign(name, found);
      if (left_out_.contains(weight)) left_out.insert(name);
    }
    if (names != renamed.end() && names->second.empty()) dropped.push_back(weight);
  }
  table_.weights = std::move(weights);
  left_out_ = std::move(left_out);
  names_.clear();
  for (const auto& [weight, found] : table_.weights) names_.push_back(weight);
  return dropped;
}

void Statistics::use_names_of(const Model& model, const Renamed& renamed) {
  Renamed used;
  for (const auto& [weight, names] : possible_names_) {
    const auto known =
        std::ranges::find_if(names, [&](const std::string& name) { return model.has(name) || renamed.contains(name); });
    if (known != names.end()) used[weight] = {*known};
  }
  rename(used);
}

Result<void> Statistics::check_fits(const Model& model, std::span<const LayerPlan> plans) const {
  for (const auto& [weight, found] : table_.weights) {
    const TensorInfo* const tensor = model.find(weight);
    if (tensor == nullptr) {
      return fail(Errc::kCorrupt, "{}: has statistics for tensor {}, which {} does not have", escape(file_.path()), quote(weight),
                  escape(model.path()));
    }
    const LayerPlan& plan = plans[static_cast<std::size_t>(tensor - model.tensors().data())];
    if (may_have_columns(*tensor, plan, found.columns)) continue;
    return fail(Errc::kCorrupt, "{}: has statistics for tensor {} with {} columns, in {} it has {}", escape(file_.path()),
                quote(weight), found.columns, escape(model.path()),
                plan.bits != 0 ? fmt::to_string(plan.columns) : fmt::format("shape {}", to_string(tensor->shape)));
  }
  return {};
}

Coverage Statistics::coverage(const Model& model, std::span<const LayerPlan> plans) const {
  Coverage coverage;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].bits == 0) continue;
    const std::string_view tensor = model.tensors()[i].name;
    ++coverage.quantized;
    if (has(tensor)) {
      ++coverage.covered;
    } else {
      coverage.uncovered.emplace_back(tensor);
    }
  }
  return coverage;
}

}  // namespace ballast
