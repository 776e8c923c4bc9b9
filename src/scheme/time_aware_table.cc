#include "scheme/time_aware_table.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

using simdjson::dom::element;

template <class T>
Result<std::vector<T>> numbers_of(const element& list, std::string_view what) {
  simdjson::dom::array items;
  if (list.get(items) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "{} is not a list", what);
  std::vector<T> numbers;
  for (const element& item : items) {
    double number = 0;
    if (item.get(number) != simdjson::SUCCESS || !std::isfinite(static_cast<T>(number))) {
      return fail(Errc::kCorrupt, "item {} of {} is not a finite number", numbers.size(), what);
    }
    numbers.push_back(static_cast<T>(number));
  }
  return numbers;
}

template <class T>
Result<std::vector<T>> member_of(const element& object, std::string_view key) {
  element list;
  if (object[key].get(list) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "no list {}", key);
  return numbers_of<T>(list, key);
}

Result<void> check_ascending(std::span<const double> boundaries) {
  const auto found = std::ranges::adjacent_find(boundaries, std::greater_equal());
  if (found == boundaries.end()) return {};
  return fail(Errc::kCorrupt, "boundaries are not ascending: {} comes before {}", *found, *(found + 1));
}

Result<void> check_size(std::string_view kind, std::size_t found, std::uint64_t expected) {
  if (found == expected) return {};
  return fail(Errc::kCorrupt, "{} has {} values, expected {}", kind, found, expected);
}

}  // namespace

Result<void> read_floats(std::string_view json, std::string_view key, std::vector<float>& out) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, json));
  auto numbers = TRY(member_of<float>(root, key));
  out = std::move(numbers);
  return {};
}

Result<void> TimeAwareTable::set_boundaries(std::string_view json) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, json));
  auto numbers = TRY(numbers_of<double>(root, "boundaries"));
  boundaries = std::move(numbers);
  return check_ascending(boundaries);
}

Result<void> TimeAwareTable::add(std::string_view layer, std::uint64_t rows, std::string_view kind, std::vector<float> values) {
  Layer& own = layers[std::string(layer)];
  own.rows = rows;
  const bool is_bias = kind == "time_bias";
  if (!is_bias && kind != "act_scale" && kind != "act_zero") return fail(Errc::kCorrupt, "{} is unknown", quote(kind));
  TRY(check_size(kind, values.size(), groups() * (is_bias ? rows : 1)));
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    return fail(Errc::kCorrupt, "{} has values that are NaN or infinite", kind);
  }
  if (kind == "act_scale" && !std::ranges::all_of(values, [](float value) { return value > 0; })) {
    return fail(Errc::kCorrupt, "act_scale has values that are not positive");
  }
  (is_bias ? own.bias : kind == "act_scale" ? own.act_scale : own.act_zero) = std::move(values);
  return {};
}

Result<void> TimeAwareTable::add_json(std::string_view layer, std::uint64_t rows, std::uint64_t first, std::uint64_t count,
                                      std::string_view json) {
  simdjson::dom::parser parser;
  const auto root = TRY(parse_json(parser, json));
  const auto own_boundaries = TRY(member_of<double>(root, "boundaries"));
  if (layers.empty()) {
    boundaries = own_boundaries;
    TRY(check_ascending(boundaries));
  } else if (boundaries != own_boundaries) {
    return fail(Errc::kCorrupt, "the boundaries differ from those of other layers");
  }
  simdjson::dom::array biases;
  if (root["time_bias"].get(biases) != simdjson::SUCCESS) return fail(Errc::kCorrupt, "no list time_bias");
  TRY(check_size("time_bias", biases.size(), groups()));
  Layer& own =
      layers.try_emplace(std::string(layer), Layer{.rows = rows, .bias = std::vector<float>(groups() * rows)}).first->second;
  std::size_t group = 0;
  for (const element& each : biases) {
    const auto values = TRY(numbers_of<float>(each, "time_bias"));
    TRY(check_size("a group of time_bias", values.size(), count));
    std::ranges::copy(values, own.bias.begin() + static_cast<std::ptrdiff_t>(group * rows + first));
    ++group;
  }
  const auto has = [&](std::string_view key) { return root[key].error() == simdjson::SUCCESS; };
  if (first > 0 || (!has("act_scale") && !has("act_zero"))) return {};
  for (const std::string_view kind : {"act_scale", "act_zero"}) {
    auto values = TRY(member_of<float>(root, kind));
    TRY(add(layer, rows, kind, std::move(values)));
  }
  return {};
}

Result<void> TimeAwareTable::check() const {
  for (const auto& [name, layer] : layers) {
    const std::string_view missing = layer.bias.empty()                                  ? "time_bias"
                                     : layer.act_scale.empty() == layer.act_zero.empty() ? ""
                                     : layer.act_scale.empty()                           ? "act_scale"
                                                                                         : "act_zero";
    if (!missing.empty()) return fail(Errc::kCorrupt, "tensor {}: no {}", quote(name), missing);
  }
  return {};
}

}  // namespace ballast
