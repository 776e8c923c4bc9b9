#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "format/mlx_json/float_layout.h"
#include "format/mlx_json/values.h"

namespace ballast::mlx_json {
namespace {

constexpr std::size_t kLongest = 32;  // upper bound for a value with its comma

char* put(char* out, std::string_view text) { return std::ranges::copy(text, out).out; }

char* format_special(const FloatLayout& layout, std::uint64_t code, char* out) {
  if (code == layout.quiet_nan()) return put(out, R"("NaN")");
  if (code == layout.infinity()) return put(out, R"("Infinity")");
  if (code == (layout.sign() | layout.infinity())) return put(out, R"("-Infinity")");
  return fmt::format_to(out, R"("nan:{:0{}x}")", code, layout.bits() / 4);
}

template <class Number>
char* format_number(Number value, char* out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (value == 0 && std::signbit(value)) return put(out, "-0.0");  // some readers parse -0 as an integer and lose the sign
  }
  return std::to_chars(out, out + kLongest, value).ptr;
}

template <FloatLayout kLayout>
double widen(std::uint64_t code) {
  constexpr int kBias = (1 << (kLayout.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<int>((code & ~kLayout.sign()) >> kLayout.mantissa_bits);
  const std::uint64_t fraction = code & ((std::uint64_t{1} << kLayout.mantissa_bits) - 1);
  const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << kLayout.mantissa_bits;
  const double magnitude =
      std::ldexp(static_cast<double>(fraction | hidden), std::max(exponent, 1) - kBias - kLayout.mantissa_bits);
  return (code & kLayout.sign()) != 0 ? -magnitude : magnitude;
}

// The decimal with the fewest digits that reads back as this code.
template <FloatLayout kLayout>
double shortest(std::uint16_t code) {
  const double exact = widen<kLayout>(code);
  std::array<char, kLongest> text{};
  double decimal = exact;
  for (int digits = 0; digits < 6; ++digits) {  // digits after the first
    const auto [stop, error] = std::to_chars(text.begin(), text.end(), exact, std::chars_format::scientific, digits);
    std::from_chars(text.begin(), stop, decimal);
    if (narrow<kLayout>(decimal) == code) return decimal;
  }
  return exact;
}

struct ShortText {
  std::array<char, 15> text;
  std::uint8_t length;
};

// The text of all 65,536 values. A lookup is about thirty times faster than computing the shortest text.
template <FloatLayout kLayout>
std::vector<ShortText> make_texts() {
  std::vector<ShortText> texts(std::size_t{1} << 16);
  for (std::size_t code = 0; code < texts.size(); ++code) {
    std::array<char, kLongest> text{};
    const char* const end = kLayout.is_finite(code)
                                ? format_number(shortest<kLayout>(static_cast<std::uint16_t>(code)), text.data())
                                : format_special(kLayout, code, text.data());
    texts[code].length = static_cast<std::uint8_t>(end - text.data());
    std::memcpy(texts[code].text.data(), text.data(), texts[code].text.size());
  }
  return texts;
}

// Formats values of type T with format(value, out), which returns the end of its output.
template <class T, class Format>
void append_each(std::span<const std::byte> bytes, std::string& out, Format&& format) {
  constexpr std::size_t kBlock = 1024;
  bool first = true;
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(bytes.size(), kBlock * sizeof(T)));
    bytes = bytes.subspan(block.size());
    const std::size_t before = out.size();
    out.resize_and_overwrite(before + block.size() / sizeof(T) * kLongest, [&](char* text, std::size_t) {
      char* at = text + before;
      for (std::size_t i = 0; i < block.size(); i += sizeof(T)) {
        T value;
        std::memcpy(&value, block.data() + i, sizeof(T));
        if (!first) *at++ = ',';
        first = false;
        at = format(value, at);
      }
      return static_cast<std::size_t>(at - text);
    });
  }
}

template <class T>
void append_integers(std::span<const std::byte> bytes, std::string& out) {
  append_each<T>(bytes, out, [](T value, char* at) { return format_number(value, at); });
}

template <class T, class Code>
void append_floats(const FloatLayout& layout, std::span<const std::byte> bytes, std::string& out) {
  append_each<T>(bytes, out, [&layout](T value, char* at) {
    if (std::isfinite(value)) return format_number(value, at);
    return format_special(layout, std::bit_cast<Code>(value), at);
  });
}

template <FloatLayout kLayout>
void append_short_floats(std::span<const std::byte> bytes, std::string& out) {
  static const std::vector<ShortText> texts = make_texts<kLayout>();
  append_each<std::uint16_t>(bytes, out, [](std::uint16_t code, char* at) {
    const ShortText& text = texts[code];
    std::memcpy(at, text.text.data(), text.text.size());
    return at + text.length;
  });
}

}  // namespace

void append_values(DType dtype, std::span<const std::byte> bytes, std::string& out) {
  switch (dtype) {
    case DType::kF32: return append_floats<float, std::uint32_t>(kSingle, bytes, out);
    case DType::kF64: return append_floats<double, std::uint64_t>(kDouble, bytes, out);
    case DType::kF16: return append_short_floats<kHalf>(bytes, out);
    case DType::kBF16: return append_short_floats<kBfloat>(bytes, out);
    case DType::kI8: return append_integers<std::int8_t>(bytes, out);
    case DType::kI16: return append_integers<std::int16_t>(bytes, out);
    case DType::kI32: return append_integers<std::int32_t>(bytes, out);
    case DType::kI64: return append_integers<std::int64_t>(bytes, out);
    case DType::kU16: return append_integers<std::uint16_t>(bytes, out);
    case DType::kU32: return append_integers<std::uint32_t>(bytes, out);
    case DType::kU64: return append_integers<std::uint64_t>(bytes, out);
    default: return append_integers<std::uint8_t>(bytes, out);
  }
}

}  // namespace ballast::mlx_json
