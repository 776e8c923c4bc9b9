#include "scheme/bitsandbytes/quant_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/declared.h"

namespace ballast {
namespace {

std::optional<DType> dtype_of(std::string_view name) {
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  if (name == "float32") return DType::kF32;
  return std::nullopt;
}

// A power of two, from 32 to 4096.
Result<std::uint64_t> block_size(const Section& section, std::string_view key) {
  constexpr std::int64_t kLeast = 32;
  constexpr std::int64_t kMost = 4096;
  const std::int64_t size = TRY(section.number(key)).value_or(0);
  if (size < kLeast || size > kMost || !std::has_single_bit(static_cast<std::uint64_t>(size))) {
    return section.wrong(key, "a power of two from 32 to 4096");
  }
  return static_cast<std::uint64_t>(size);
}

Result<void> read_shape(const Section& section, QuantState& state) {
  constexpr std::string_view kKey = "shape";
  constexpr std::string_view kExpected = "a list of positive numbers";
  const auto dims = TRY(section.numbers(kKey));
  if (!dims || dims->empty() || std::ranges::any_of(*dims, [](std::int64_t dim) { return dim < 1; })) {
    return section.wrong(kKey, kExpected);
  }
  for (const std::int64_t dim : *dims) state.shape.push_back(static_cast<std::uint64_t>(dim));
  const auto elements = checked_elements(state.shape);
  if (!elements || *elements > ~std::uint64_t{0} / 8) return section.wrong(kKey, kExpected);
  state.elements = *elements;
  return {};
}

Result<void> read_nested(const Section& section, QuantState& state) {
  constexpr std::string_view kDtype = "nested_dtype";
  constexpr std::string_view kOffset = "nested_offset";
  if (!section.has("nested_blocksize") && !section.has(kOffset)) return {};
  state.nested_block_size = TRY(block_size(section, "nested_blocksize"));
  if (const auto dtype = TRY(section.text(kDtype)); dtype && *dtype != "float32") return section.wrong(kDtype, "float32");
  double offset = 0;
  if (section.object()[kOffset].get(offset) != simdjson::SUCCESS || !std::isfinite(static_cast<float>(offset))) {
    return section.wrong(kOffset, "a finite number");
  }
  state.nested_offset = static_cast<float>(offset);
  return {};
}

}  // namespace

Result<QuantState> parse_quant_state(std::string_view json, const std::string& place, std::string_view type) {
  constexpr std::string_view kType = "quant_type";
  const auto section = Section::parse({.method = {}, .place = place, .json = std::string(json)});
  if (!section) return fail(Errc::kCorrupt, "{}: not a quantization state: {}", place, section.error().message);
  QuantState state{.type = std::string(type)};
  if (TRY(section->text(kType)) != type) return section->wrong(kType, type);
  state.block_size = TRY(block_size(*section, "blocksize"));
  state.dtype = dtype_of(TRY(section->text("dtype")).value_or(""));
  TRY(read_shape(*section, state));
  TRY(read_nested(*section, state));
  return state;
}

}  // namespace ballast
