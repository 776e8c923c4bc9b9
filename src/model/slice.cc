#include "model/slice.h"

#include <algorithm>
#include <charconv>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

Result<std::optional<std::int64_t>> parse_bound(std::string_view text) {
  const auto blank = [](char c) { return c == ' '; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  if (text.empty()) return std::nullopt;
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size()) {
    return fail(Errc::kInvalidArgument, "'{}' is not a whole number", escape(text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Result<Slice> parse_slice(std::string_view text) {
  const auto parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) {
    return fail(Errc::kInvalidArgument, "'{}' is not a slice; expected start:stop or start:stop:step", escape(text));
  }
  const auto start = parse_bound(parts[0]);
  const auto stop = parse_bound(parts[1]);
  const auto step = parts.size() == 3 ? parse_bound(parts[2]) : std::nullopt;
  for (const auto* bound : {&start, &stop, &step}) {
    if (!*bound) return std::unexpected(bound->error());
  }
  return Slice{.start = *start, .stop = *stop, .step = step->value_or(1)};
}

}  // namespace

SliceRange resolve_slice(const Slice& slice, std::int64_t size) {
  const bool forward = slice.step > 0;
  const std::int64_t low = forward ? 0 : -1;
  const std::int64_t high = forward ? size : size - 1;
  const auto bound = [&](std::optional<std::int64_t> given, std::int64_t missing) {
    if (!given) return missing;
    const std::int64_t position = *given < 0 ? *given + size : *given;  // size >= 0, so this cannot overflow
    return std::clamp(position, low, high);
  };
  const std::int64_t start = bound(slice.start, forward ? low : high);
  const std::int64_t stop = bound(slice.stop, forward ? high : low);
  const std::int64_t distance = forward ? stop - start : start - stop;
  if (distance <= 0) return {.start = 0, .step = slice.step, .count = 0};
  const auto stride = forward ? static_cast<std::uint64_t>(slice.step) : 0 - static_cast<std::uint64_t>(slice.step);
  return {.start = start, .step = slice.step, .count = (static_cast<std::uint64_t>(distance) - 1) / stride + 1};
}

Result<std::vector<Slice>> parse_slices(std::string_view text) {
  std::vector<Slice> slices;
  for (const std::string_view part : split(text, ',')) {
    const auto slice = TRY(parse_slice(part));
    slices.push_back(slice);
  }
  return slices;
}

Result<SlicePlan> plan_slice(Shape shape, DType dtype, std::span<const Slice> slices) {
  if (slices.size() > shape.size()) {
    return fail(Errc::kInvalidArgument, "{} slices, but shape {} has {} dimension{}", slices.size(), to_string(shape),
                shape.size(), shape.size() == 1 ? "" : "s");
  }
  std::vector<SliceRange> ranges;
  bool empty = false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const Slice slice = i < slices.size() ? slices[i] : Slice{};
    if (slice.step == 0) return fail(Errc::kInvalidArgument, "dimension {}: the step of a slice cannot be 0", i);
    const bool whole = !slice.start && !slice.stop && slice.step == 1;
    if (!whole && shape[i] > INT64_MAX) return fail(Errc::kUnsupported, "dimension {} of {} is too large to slice", i, shape[i]);
    ranges.push_back(whole ? SliceRange{.start = 0, .step = 1, .count = shape[i]}
                           : resolve_slice(slice, static_cast<std::int64_t>(shape[i])));
    empty = empty || ranges.back().count == 0;
  }
  SlicePlan plan;
  for (const SliceRange& range : ranges) plan.shape.push_back(range.count);
  if (empty) return plan;

  // No dimension is 0, so every stride below is at most the tensor's size in bits, which must fit into a signed number.
  if (const auto elements = checked_elements(shape); !elements || *elements > INT64_MAX / bits(dtype)) {
    return fail(Errc::kUnsupported, "shape {} of {} is too large to slice", to_string(shape), name(dtype));
  }
  std::uint64_t stride = bits(dtype);
  std::uint64_t first = 0;
  std::uint64_t run = bits(dtype);
  std::uint64_t total = bits(dtype);
  struct BitStep {
    std::uint64_t count;
    std::int64_t stride;
  };
  std::vector<BitStep> steps;
  for (std::size_t i = shape.size(); i-- > 0;) {
    const SliceRange& range = ranges[i];
    first += static_cast<std::uint64_t>(range.start) * stride;
    total *= range.count;
    if (range.count > 1) {
      const bool extends_run = steps.empty() && range.step == 1 && stride == run;
      if (extends_run) {
        run *= range.count;
      } else {
        steps.push_back({.count = range.count, .stride = range.step * static_cast<std::int64_t>(stride)});
      }
    }
    stride *= shape[i];
  }
  const auto whole_bytes = [](auto bit_count) { return bit_count % 8 == 0; };
  if (!whole_bytes(first) || !whole_bytes(run) || !std::ranges::all_of(steps, whole_bytes, &BitStep::stride)) {
    return fail(Errc::kUnsupported, "slice of {} does not start and end at byte boundaries: runs of {} bits from bit {}",
                name(dtype), run, first);
  }
  plan.first = first / 8;
  plan.run = run / 8;
  plan.bytes = total / 8;
  for (const BitStep& step : steps) plan.steps.insert(plan.steps.begin(), {.count = step.count, .stride = step.stride / 8});
  return plan;
}

Result<void> read_slice(const Source& source, std::uint64_t base, const SlicePlan& plan, std::span<std::byte> out) {
  if (plan.bytes == 0) return {};
  constexpr std::size_t kMostRanges = std::size_t{1} << 16;
  std::vector<Range> ranges;
  std::vector<std::uint64_t> index(plan.steps.size(), 0);
  std::uint64_t offset = base + plan.first;
  for (;;) {
    ranges.push_back({.offset = offset, .out = out.first(plan.run)});
    out = out.subspan(plan.run);
    if (out.empty() || ranges.size() == kMostRanges) {
      if (auto read = source.read_ranges(ranges); !read || out.empty()) return read;
      ranges.clear();
    }
    for (std::size_t axis = index.size(); axis-- > 0;) {
      const SlicePlan::Step& step = plan.steps[axis];
      if (++index[axis] < step.count) {
        offset += static_cast<std::uint64_t>(step.stride);
        break;
      }
      index[axis] = 0;
      offset -= (step.count - 1) * static_cast<std::uint64_t>(step.stride);
    }
  }
}

}  // namespace ballast
