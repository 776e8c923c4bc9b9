#include "convert/wide.h"

#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace ballast {
namespace {

// BOOL as a type of its own: a byte that is 0 or 1.
struct Bool {
  std::uint8_t byte;
};

// Calls function(type_identity<T>) with the type that stores an integer dtype.
template <class Function>
void with_integer(DType dtype, Function&& function) {
  using enum DType;
  switch (dtype) {
    case kBool: return function(std::type_identity<Bool>());
    case kU8: return function(std::type_identity<std::uint8_t>());
    case kI8: return function(std::type_identity<std::int8_t>());
    case kI16: return function(std::type_identity<std::int16_t>());
    case kU16: return function(std::type_identity<std::uint16_t>());
    case kI32: return function(std::type_identity<std::int32_t>());
    case kU32: return function(std::type_identity<std::uint32_t>());
    case kI64: return function(std::type_identity<std::int64_t>());
    case kU64: return function(std::type_identity<std::uint64_t>());
    default: return;
  }
}

template <class T>
struct Saturated {
  T value;
  bool lost;
};

template <class T, std::integral Wide>
Saturated<T> saturate(Wide value) {
  if (std::in_range<T>(value)) return {.value = static_cast<T>(value), .lost = false};
  const bool below = std::cmp_less(value, std::numeric_limits<T>::min());
  return {.value = below ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max(), .lost = true};
}

template <class T>
Saturated<T> saturate(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  constexpr auto kLow = static_cast<double>(kMin);
  // One past the maximum, because the maximum itself may not be representable as a double.
  constexpr double kEnd = 2.0 * static_cast<double>(std::uint64_t{1} << (std::numeric_limits<T>::digits - 1));
  if (value <= kLow) return {.value = kMin, .lost = value != kLow};
  if (value >= kEnd) return {.value = kMax, .lost = true};
  if (value != value) return {.value = 0, .lost = true};
  const T truncated = static_cast<T>(value);
  return {.value = truncated, .lost = static_cast<double>(truncated) != value};
}

template <class Wide>
void load_all(DType from, const std::byte* in, std::span<Wide> out) {
  with_integer(from, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      T value{};
      std::memcpy(&value, in + i * sizeof(T), sizeof(T));
      if constexpr (std::same_as<T, Bool>) {
        out[i] = Wide(value.byte != 0 ? 1 : 0);
      } else {
        out[i] = static_cast<Wide>(value);  // NOLINT(bugprone-signed-char-misuse): a number, not a character
      }
    }
  });
}

template <class Wide>
void store_all(DType to, std::span<const Wide> values, std::byte* out, std::uint64_t index, LossCounter& losses) {
  with_integer(to, [&]<class T>(std::type_identity<T>) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      Saturated<T> result{};
      if constexpr (std::same_as<T, Bool>) {
        const bool truth = values[i] != Wide{0};
        result = {.value = {truth}, .lost = truth && values[i] != Wide{1}};
      } else {
        result = saturate<T>(values[i]);
      }
      std::memcpy(out + i * sizeof(T), &result.value, sizeof(T));
      losses.add(result.lost, index + i);
    }
  });
}

}  // namespace

void load_integers(DType from, const std::byte* in, std::span<std::int64_t> out) { load_all(from, in, out); }
void load_integers(DType from, const std::byte* in, std::span<float> out) { load_all(from, in, out); }

void store_integers(DType to, std::span<const std::int64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses) {
  store_all(to, values, out, index, losses);
}

void store_integers(DType to, std::span<const std::uint64_t> values, std::byte* out, std::uint64_t index, LossCounter& losses) {
  store_all(to, values, out, index, losses);
}

void store_integers(DType to, std::span<const double> values, std::byte* out, std::uint64_t index, LossCounter& losses) {
  store_all(to, values, out, index, losses);
}

}  // namespace ballast
