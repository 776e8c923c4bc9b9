// Uses three bytes as a dtype and two dims, and the rest as slices of such a tensor. Compares the bytes that the plan reads with
// those selected element by element.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "check.h"
#include "model/slice.h"

namespace ballast {
namespace {

// Python's slice.indices(), step by step.
std::vector<std::int64_t> indices(const Slice& slice, std::int64_t size) {
  const auto bound = [&](std::optional<std::int64_t> given, std::int64_t missing) {
    if (!given) return missing;
    return *given < 0 ? std::max<std::int64_t>(*given + size, -1) : std::min(*given, size);
  };
  std::int64_t at = bound(slice.start, slice.step > 0 ? 0 : size - 1);
  const std::int64_t stop = bound(slice.stop, slice.step > 0 ? size : -1);
  if (slice.step > 0) at = std::max<std::int64_t>(at, 0);
  if (slice.step < 0) at = std::min(at, size - 1);

  std::vector<std::int64_t> taken;
  while (slice.step > 0 ? at < stop : at > stop) {
    taken.push_back(at);
    if (__builtin_add_overflow(at, slice.step, &at)) break;
  }
  return taken;
}

constexpr std::uint64_t kMostRows = 255;
constexpr std::uint64_t kMostColumns = 2040;

std::span<const std::byte> tensor_bytes(std::size_t size) {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(kMostRows * kMostColumns * sizeof(std::uint64_t));
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::byte>(i * 151 + (i >> 8));
    return made;
  }();
  return std::span(bytes).first(size);
}

void check_slices(DType dtype, Shape shape, std::string_view text) {
  const auto slices = parse_slices(text);
  if (!slices) return check(slices.error().code == Errc::kInvalidArgument);
  const auto plan = plan_slice(shape, dtype, *slices);
  if (!plan) return check(!plan.error().message.empty());

  const auto data = tensor_bytes(shape[0] * shape[1] * bits(dtype) / 8);
  std::vector<std::byte> out(plan->bytes);
  check(read_slice(*open_memory(data), 0, *plan, out).has_value());

  const auto taken = [&](std::size_t axis) {
    return indices(axis < slices->size() ? (*slices)[axis] : Slice{}, static_cast<std::int64_t>(shape[axis]));
  };
  const auto rows = taken(0);
  const auto columns = taken(1);
  check(std::ranges::equal(plan->shape, std::array{rows.size(), columns.size()}));
  check(out.size() == rows.size() * columns.size() * bits(dtype) / 8);
  if (bits(dtype) < 8) return;
  const std::size_t width = bits(dtype) / 8;
  auto at = out.begin();
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : columns) {
      const auto element = data.begin() + (row * static_cast<std::int64_t>(shape[1]) + column) * static_cast<std::int64_t>(width);
      check(std::equal(element, element + static_cast<std::int64_t>(width), at));
      at += static_cast<std::int64_t>(width);
    }
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const auto dtype = static_cast<ballast::DType>(data[0] % ballast::kDTypes.size());
  const std::array<std::uint64_t, 2> shape{data[1], std::uint64_t{data[2]} * 8};  // whole bytes for every dtype
  ballast::check_slices(dtype, shape, {reinterpret_cast<const char*>(data) + 3, size - 3});
  return 0;
}
