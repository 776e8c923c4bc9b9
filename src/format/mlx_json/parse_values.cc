#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "format/mlx_json/float_layout.h"
#include "format/mlx_json/text_window.h"
#include "format/mlx_json/values.h"

namespace ballast::mlx_json {
namespace {

constexpr std::string_view kNanPrefix = "nan:";

std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t code = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (error != std::errc{} || stop != digits.data() + digits.size()) return std::nullopt;
  return code;
}

// The code of a special value in this layout.
std::optional<std::uint64_t> parse_special(const FloatLayout& layout, std::string_view text) {
  if (text == "NaN") return layout.quiet_nan();
  if (text == "Infinity") return layout.infinity();
  if (text == "-Infinity") return layout.sign() | layout.infinity();
  if (!text.starts_with(kNanPrefix)) return std::nullopt;
  text.remove_prefix(kNanPrefix.size());
  if (text.size() != static_cast<std::size_t>(layout.bits()) / 4) return std::nullopt;
  const auto code = parse_hex(text);
  return code && layout.is_nan(*code) ? code : std::nullopt;
}

// Whether a number that is out of range is too small, not too large.
bool is_tiny(std::string_view number) {
  constexpr std::int64_t kFar = 1'000'000'000'000;
  const std::size_t e = number.find_first_of("eE");
  std::int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view digits = number.substr(e + 1);
    const bool negative = digits.starts_with('-');
    digits.remove_prefix(digits.find_first_of("0123456789"));
    for (const char digit : digits) exponent = std::min(exponent * 10 + (digit - '0'), kFar);
    if (negative) exponent = -exponent;
  }
  const std::string_view mantissa = number.substr(0, e);
  const auto point = static_cast<std::int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const auto first = static_cast<std::int64_t>(mantissa.find_first_of("123456789"));
  return exponent + (point - first) <= 0;
}

template <class Float>
std::optional<Float> parse_float(std::string_view number) {
  Float value = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (stop != number.data() + number.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    if (!is_tiny(number)) return std::nullopt;
    return number.starts_with('-') ? -Float{0} : Float{0};
  }
  if (!std::isfinite(value)) return std::nullopt;
  return value;
}

template <class T>
struct Plain {
  using Parsed = T;
  using Stored = T;
  static T store(T value) { return value; }
  static bool fits(T) { return true; }
};

template <FloatLayout kLayout>
struct Narrow {
  using Parsed = double;
  using Stored = std::uint16_t;
  static std::uint16_t store(double value) { return narrow<kLayout>(value); }
  static bool fits(std::uint16_t code) { return kLayout.is_finite(code); }
};

// Calls use(codec) with the codec for a dtype.
template <class Use>
auto with_codec(DType dtype, Use&& use) {
  switch (dtype) {
    case DType::kF32: return use(Plain<float>{});
    case DType::kF64: return use(Plain<double>{});
    case DType::kF16: return use(Narrow<kHalf>{});
    case DType::kBF16: return use(Narrow<kBfloat>{});
    case DType::kI8: return use(Plain<std::int8_t>{});
    case DType::kI16: return use(Plain<std::int16_t>{});
    case DType::kI32: return use(Plain<std::int32_t>{});
    case DType::kI64: return use(Plain<std::int64_t>{});
    case DType::kU16: return use(Plain<std::uint16_t>{});
    case DType::kU32: return use(Plain<std::uint32_t>{});
    case DType::kU64: return use(Plain<std::uint64_t>{});
    default: return use(Plain<std::uint8_t>{});  // uint8 and bool
  }
}

template <class Codec>
bool parse_number(Codec, std::string_view number, std::byte* out) {
  typename Codec::Stored stored{};
  if constexpr (std::is_floating_point_v<typename Codec::Parsed>) {
    const auto value = parse_float<typename Codec::Parsed>(number);
    if (!value) return false;
    stored = Codec::store(*value);
    if (!Codec::fits(stored)) return false;
  } else {
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), stored);
    if (error != std::errc{} || stop != number.data() + number.size()) return false;
  }
  std::memcpy(out, &stored, sizeof(stored));
  return true;
}

template <class Codec>
std::size_t parse_numbers(Codec, const char*& at, const char* end, std::size_t most, std::byte* out) {
  const char* place = at;
  std::size_t count = 0;
  for (; count < most; ++count) {
    typename Codec::Parsed value{};
    const auto [stop, error] = std::from_chars(place, end, value);
    if (error != std::errc{} || *stop != ',') break;
    const auto stored = Codec::store(value);
    if (!Codec::fits(stored)) break;
    if constexpr (std::is_floating_point_v<typename Codec::Parsed>) {
      if (!std::isfinite(value)) break;
    }
    std::memcpy(out + count * sizeof(stored), &stored, sizeof(stored));
    place = skip_space(stop + 1);
  }
  at = place;
  return count;
}

}  // namespace

bool is_special(std::string_view text) {
  if (text == "NaN" || text == "Infinity" || text == "-Infinity") return true;
  if (!text.starts_with(kNanPrefix)) return false;
  text.remove_prefix(kNanPrefix.size());
  return (text.size() == 4 || text.size() == 8 || text.size() == 16) && parse_hex(text).has_value();
}

bool parse_value(DType dtype, std::string_view entry, std::byte* out) {
  if (dtype == DType::kBool && (entry == "true" || entry == "false")) {
    *out = std::byte{entry == "true"};
    return true;
  }
  if (with_codec(dtype, [&](auto codec) { return parse_number(codec, entry, out); })) return true;
  const auto layout = float_layout(dtype);
  if (!layout) return false;
  if (entry.size() >= 2 && entry.starts_with('"') && entry.ends_with('"')) {
    entry = entry.substr(1, entry.size() - 2);
  } else if (entry.starts_with(kNanPrefix)) {
    return false;
  }
  const auto code = parse_special(*layout, entry);
  if (code) std::memcpy(out, &*code, static_cast<std::size_t>(layout->bits()) / 8);
  return code.has_value();
}

std::size_t parse_run(DType dtype, const char*& at, const char* end, std::size_t most, std::byte* out) {
  return with_codec(dtype, [&](auto codec) { return parse_numbers(codec, at, end, most, out); });
}

}  // namespace ballast::mlx_json
