#include "format.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/text.h>

namespace ballast::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Cuts the run of digits off the front of `text`, without its leading zeros.
std::string_view take_number(std::string_view& text) {
  const auto stop = std::ranges::find_if_not(text, is_digit);
  std::string_view digits(text.begin(), stop);
  text = {stop, text.end()};
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string grouped(std::uint64_t number) {
  std::string digits = fmt::format("{}", number);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string shape_text(Shape shape) {
  constexpr std::size_t kMostDims = 12;
  if (shape.size() <= kMostDims) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, … {} dims]", fmt::join(shape.first(kMostDims), ", "), shape.size());
}

std::string label_text(std::string_view name) { return name.empty() ? "''" : escape(name); }

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

bool natural_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = take_number(a);
      const std::string_view y = take_number(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a.front() != b.front()) return a < b;
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;
}

}  // namespace ballast::cli
