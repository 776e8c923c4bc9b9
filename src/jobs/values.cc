#include <ballast/values.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/decode.h"
#include "model/state.h"

namespace ballast {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{4} << 20;  // the unit of work, independent of the number of threads
constexpr std::size_t kChunkValues = 4096;                 // numbers decoded at a time
constexpr std::size_t kLanes = 8;                          // of every sum, independent of the instruction set

// Statistics of some of a tensor's numbers, to be merged in the order of the file.
struct Partial {
  std::uint64_t zeros = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t finite = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double squared_deviations = 0;

  void merge(const Partial& other) {
    zeros += other.zeros;
    nans += other.nans;
    infinities += other.infinities;
    if (other.finite == 0) return;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
    const auto a = static_cast<double>(finite);
    const auto b = static_cast<double>(other.finite);
    const double delta = other.mean - mean;
    finite += other.finite;
    mean += delta * (b / (a + b));
    squared_deviations += other.squared_deviations + delta * delta * (a * b / (a + b));
  }
};

double sum(const std::array<double, kLanes>& lanes) {
  double total = 0;
  for (const double lane : lanes) total += lane;
  return total;
}

Partial measure_chunk(std::span<const double> values) {
  Partial partial;
  std::array<double, kLanes> sums{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    const bool finite = std::isfinite(value);
    partial.finite += finite ? 1 : 0;
    partial.nans += std::isnan(value) ? 1 : 0;
    partial.zeros += value == 0 ? 1 : 0;
    partial.min = finite && value < partial.min ? value : partial.min;
    partial.max = finite && value > partial.max ? value : partial.max;
    sums[i % kLanes] += finite ? value : 0;
  }
  partial.infinities = values.size() - partial.finite - partial.nans;
  if (partial.finite == 0) return partial;
  partial.mean = sum(sums) / static_cast<double>(partial.finite);
  std::array<double, kLanes> squares{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double deviation = std::isfinite(values[i]) ? values[i] - partial.mean : 0;
    squares[i % kLanes] += deviation * deviation;
  }
  partial.squared_deviations = sum(squares);
  return partial;
}

using Histogram = decltype(TensorStats::histogram);

void count_bins(std::span<const double> values, double min, double max, Histogram& histogram) {
  const auto bins = static_cast<double>(histogram.size());
  const double half = std::isinf(max - min) ? 0.5 : 1;  // brings the widest range of doubles back within doubles
  const double range = max * half - min * half;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const double share = range > 0 ? (value * half - min * half) / range : 0;  // 0 to 1, even where 1 / range is infinite
    ++histogram[static_cast<std::size_t>(std::clamp(share * bins, 0.0, bins - 1))];
  }
}

// One block of one tensor.
struct ValueBlock {
  std::size_t tensor;
  std::uint64_t offset;
  std::size_t bytes;
};

// Visits the data of tensors block by block, on several threads.
class BlockPass {
 public:
  BlockPass(const Model& model, std::span<const TensorInfo* const> tensors, const StatsOptions& options)
      : model_(model), tensors_(tensors), options_(options) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!can_decode(tensors[i]->dtype)) continue;
      for (std::uint64_t at = 0; at < tensors[i]->bytes(); at += kBlockBytes) {
        blocks_.push_back({.tensor = i, .offset = at, .bytes = std::min<std::uint64_t>(kBlockBytes, tensors[i]->bytes() - at)});
      }
      bytes_ += tensors[i]->bytes();
    }
  }

  std::span<const ValueBlock> blocks() const { return blocks_; }

  // Calls visit(block number, numbers) with up to kChunkValues numbers at a time; the calls for one block come in order, from one
  // thread.
  template <class Visit>
  Result<void> run(std::uint64_t done_before, std::uint64_t total, Visit&& visit) {
    ModelAccess::expect(model_, std::views::transform(tensors_, [](const TensorInfo* tensor) { return *tensor; }));
    const unsigned threads = thread_count(options_.work.threads);
    std::vector<std::vector<std::byte>> buffers(threads);
    return BlockLoop{.work = options_.work, .total = total, .before = done_before}.run(
        blocks_.size(),
        [&](unsigned worker, std::size_t number) -> Result<void> {
          const ValueBlock& block = blocks_[number];
          const TensorInfo& tensor = *tensors_[block.tensor];
          buffers[worker].resize(kBlockBytes);
          const std::span<std::byte> bytes(buffers[worker].data(), block.bytes);
          TRY(model_.read_into(tensor.name, block.offset, bytes));
          visit_chunks(tensor.dtype, bytes, [&](std::span<const double> values) { visit(number, values); });
          return {};
        },
        [&](std::size_t number) {
          return BlockDone{.bytes = blocks_[number].bytes, .what = tensors_[blocks_[number].tensor]->name};
        });
  }

  std::uint64_t bytes() const { return bytes_; }

 private:
  template <class Visit>
  static void visit_chunks(DType dtype, std::span<const std::byte> bytes, Visit&& visit) {
    std::array<double, kChunkValues> values{};
    const std::size_t chunk_bytes = kChunkValues * bits(dtype) / 8 / parts(dtype);
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(chunk_bytes, bytes.size()))) {
      const auto front = bytes.first(std::min(chunk_bytes, bytes.size()));
      const std::span<double> numbers(values.data(), front.size() * 8 / bits(dtype) * parts(dtype));
      decode(dtype, front, numbers);
      visit(std::span<const double>(numbers));
    }
  }

  const Model& model_;
  std::span<const TensorInfo* const> tensors_;
  const StatsOptions& options_;
  std::vector<ValueBlock> blocks_;
  std::uint64_t bytes_ = 0;
};

TensorStats finish(const TensorInfo& tensor, const Partial& all) {
  TensorStats stats{
      .count = tensor.elements() * parts(tensor.dtype), .zeros = all.zeros, .nans = all.nans, .infinities = all.infinities};
  if (all.finite == 0) {
    stats.min = stats.max = stats.mean = stats.deviation = stats.l2_norm = std::numeric_limits<double>::quiet_NaN();
    return stats;
  }
  const auto count = static_cast<double>(all.finite);
  stats.min = all.min;
  stats.max = all.max;
  stats.mean = all.mean;
  stats.deviation = std::sqrt(all.squared_deviations / count);
  stats.l2_norm = std::sqrt(all.squared_deviations + all.mean * all.mean * count);
  return stats;
}

}  // namespace

Result<std::vector<std::optional<TensorStats>>> compute_stats(const Model& model, std::span<const std::string_view> names,
                                                              const StatsOptions& options) {
  std::vector<const TensorInfo*> tensors;
  for (const std::string_view name : names) {
    const TensorInfo* const tensor = model.find(name);
    if (tensor == nullptr) return std::unexpected(model.slice(name, {}).error());
    tensors.push_back(tensor);
  }
  BlockPass pass(model, tensors, options);
  const std::uint64_t total = pass.bytes() * (options.histogram ? 2 : 1);

  std::vector<Partial> partials(pass.blocks().size());
  TRY(pass.run(0, total,
               [&](std::size_t block, std::span<const double> values) { partials[block].merge(measure_chunk(values)); }));

  std::vector<Partial> merged(tensors.size());
  for (std::size_t i = 0; i < partials.size(); ++i) merged[pass.blocks()[i].tensor].merge(partials[i]);
  std::vector<std::optional<TensorStats>> stats(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (can_decode(tensors[i]->dtype)) stats[i] = finish(*tensors[i], merged[i]);
  }
  if (!options.histogram) return stats;

  std::vector<Histogram> histograms(pass.blocks().size());
  TRY(pass.run(pass.bytes(), total, [&](std::size_t block, std::span<const double> values) {
    const TensorStats& of = *stats[pass.blocks()[block].tensor];
    count_bins(values, of.min, of.max, histograms[block]);
  }));
  for (std::size_t i = 0; i < histograms.size(); ++i) {
    Histogram& all = stats[pass.blocks()[i].tensor]->histogram;
    std::ranges::transform(all, histograms[i], all.begin(), std::plus{});
  }
  return stats;
}

std::vector<std::string> check_values(const TensorInfo& tensor, const TensorStats& stats, const ValueLimits& limits) {
  std::vector<std::string> found;
  if (!limits.allow_nan && stats.nans > 0) found.push_back(fmt::format("{} of {} values are NaN", stats.nans, stats.count));
  if (!limits.allow_infinity && stats.infinities > 0) {
    found.push_back(fmt::format("{} of {} values are infinite", stats.infinities, stats.count));
  }
  const bool is_weight = info(tensor.dtype).kind == NumberKind::kFloat && tensor.shape.size() >= 2 && stats.count > 1;
  if (!is_weight || stats.finite() == 0) return found;
  if (!limits.allow_constant && stats.constant()) {
    found.push_back(fmt::format("all {} values are {}", stats.count, stats.min));
    return found;
  }
  const double share = static_cast<double>(stats.zeros) / static_cast<double>(stats.count);
  if (share > limits.max_zero_share) {
    found.push_back(fmt::format("{} of {} values are zero, more than {}", stats.zeros, stats.count, limits.max_zero_share));
  }
  if (stats.l2_norm < limits.min_l2_norm) {
    found.push_back(fmt::format("L2 norm is {:.3g}, less than {:.3g}", stats.l2_norm, limits.min_l2_norm));
  }
  return found;
}

}  // namespace ballast
