#include "calibrate/forward/input_recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <ballast/sink.h>

#include "base/checked.h"
#include "base/parallel.h"
#include "base/try.h"
#include "calibrate/forward/kernels.h"
#include "calibrate/statistics_table.h"

namespace ballast {
namespace {

constexpr std::uint64_t kColumns = 256;  // that a thread adds up at once

std::vector<float> means_of(std::span<const double> sums, std::uint64_t count) {
  std::vector<float> means;
  for (const double sum : sums) means.push_back(static_cast<float>(sum / static_cast<double>(count)));
  return means;
}

}  // namespace

void InputRecorder::see(std::span<const std::string> weights, const LinearInputs& inputs) {
  const std::uint64_t columns = inputs.columns;
  auto found = layers_.find(weights.front());
  if (found == layers_.end()) {
    if (finished_.contains(weights.front())) return;
    const std::uint64_t bytes = hessian_ ? columns * columns * sizeof(float) : 0;
    if (bytes_ > 0 && bytes > most_bytes_ - std::min(most_bytes_, bytes_)) {
      has_more_ = true;
      return;
    }
    bytes_ += bytes;
    found = layers_.emplace(weights.front(), Inputs()).first;
    Inputs& into = found->second;
    into.weights.assign(weights.begin(), weights.end());
    into.columns = columns;
    into.sums.resize(columns);
    into.squares.resize(columns);
    into.lows.assign(columns, std::numeric_limits<float>::infinity());
    into.highs.assign(columns, -std::numeric_limits<float>::infinity());
    if (hessian_) into.hessian.resize(columns * columns);
  }
  Inputs& into = found->second;
  into.tokens += inputs.tokens;
  add_sums(into, inputs.values, inputs.tokens);
  if (hessian_) add_hessian(into, inputs);
}

void InputRecorder::add_sums(Inputs& into, const float* inputs, std::uint64_t tokens) const {
  parallel_for(ceil_div(into.columns, kColumns), products_.threads, [&](unsigned, std::size_t part) {
    const std::uint64_t end = std::min((part + 1) * kColumns, into.columns);
    for (std::uint64_t token = 0; token < tokens; ++token) {
      for (std::uint64_t i = part * kColumns; i < end; ++i) {
        const float value = inputs[token * into.columns + i];
        into.sums[i] += static_cast<double>(value);
        into.squares[i] += static_cast<double>(value) * static_cast<double>(value);
        into.lows[i] = std::min(into.lows[i], value);
        into.highs[i] = std::max(into.highs[i], value);
      }
    }
    return true;
  });
}

// Later columns have more products, so they are given out first.
void InputRecorder::add_hessian(Inputs& into, const LinearInputs& inputs) {
  const float* values = inputs.values;
  if (inputs.importance == nullptr) {
    into.importance += static_cast<double>(inputs.tokens);
  } else {
    scaled_.resize(inputs.tokens * into.columns);
    parallel_for(inputs.tokens, products_.threads, [&](unsigned, std::size_t token) {
      const std::span row(scaled_.data() + token * into.columns, into.columns);
      std::ranges::fill(row, 0.0F);
      add_scaled(row, inputs.values + token * into.columns, std::sqrt(inputs.importance[token]));
      return true;
    });
    values = scaled_.data();
    for (std::uint64_t token = 0; token < inputs.tokens; ++token)
      into.importance += static_cast<double>(inputs.importance[token]);
  }
  const std::uint64_t parts = ceil_div(into.columns, kColumns);
  parallel_for(parts, products_.threads, [&](unsigned, std::size_t i) {
    const std::uint64_t first = (parts - 1 - i) * kColumns;
    const std::uint64_t count = std::min(kColumns, into.columns - first);
    products_.blas.add_products_below(inputs.tokens, into.columns, first, count, values, into.hessian.data());
    return true;
  });
}

void InputRecorder::next() {
  for (const auto& [first, inputs] : layers_) finished_.insert(first);
  layers_.clear();
  bytes_ = 0;
  has_more_ = false;
}

std::size_t InputRecorder::weights() const {
  std::size_t count = 0;
  for (const auto& [first, inputs] : layers_) count += inputs.weights.size();
  return count;
}

Result<void> InputRecorder::save(const std::string& path, const Metadata& metadata) const {
  std::vector<TensorSpec> specs;
  for (const auto& [first, inputs] : layers_) {
    for (const std::string& weight : inputs.weights) {
      const auto add = [&](Statistic statistic, std::vector<std::uint64_t> shape) {
        specs.push_back({.name = fmt::format("{}.{}", weight, name(statistic)), .dtype = DType::kF32, .shape = std::move(shape)});
      };
      add(Statistic::kMean, {inputs.columns});
      add(Statistic::kSquareMean, {inputs.columns});
      add(Statistic::kMin, {1});
      add(Statistic::kMax, {1});
      add(Statistic::kCount, {1});
      if (hessian_) add(Statistic::kHessian, {inputs.columns, inputs.columns});
    }
  }
  const auto sink = TRY(create_sink(path, specs, {.format = Format::kSafetensors, .metadata = metadata, .sync = false}));
  std::size_t tensor = 0;
  const auto write = [&](std::span<const float> values) { return sink->write(tensor++, 0, std::as_bytes(values)); };
  std::vector<float> row;
  for (const auto& [first, inputs] : layers_) {
    const auto count = static_cast<float>(inputs.tokens);
    for (std::size_t i = 0; i < inputs.weights.size(); ++i) {
      TRY(write(means_of(inputs.sums, inputs.tokens)));
      TRY(write(means_of(inputs.squares, inputs.tokens)));
      TRY(write(std::vector{std::ranges::min(inputs.lows)}));
      TRY(write(std::vector{std::ranges::max(inputs.highs)}));
      TRY(write(std::vector{count}));
      if (!hessian_) continue;
      row.resize(inputs.columns);
      const auto total = static_cast<float>(inputs.importance);
      for (std::uint64_t r = 0; r < inputs.columns; ++r) {
        for (std::uint64_t c = 0; c < inputs.columns; ++c) {
          row[c] = inputs.hessian[std::max(r, c) * inputs.columns + std::min(r, c)] / total;
        }
        TRY(sink->write(tensor, r * inputs.columns * sizeof(float), std::as_bytes(std::span(row))));
      }
      ++tensor;
    }
  }
  return sink->commit();
}

}  // namespace ballast
