#include "base/text.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ballast {
namespace {

constexpr std::size_t kLongestName = 200;

std::uint32_t decode(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(sequence[i]); };
  switch (sequence.size()) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU);
    case 3: return (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
    default: return (byte(0) & 0x07U) << 18 | (byte(1) & 0x3fU) << 12 | (byte(2) & 0x3fU) << 6 | (byte(3) & 0x3fU);
  }
}

// Characters that are invisible or change how the text around them is displayed.
bool is_hidden(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0xad ||  // controls, soft hyphen
         code == 0x061c || (code >= 0x200b && code <= 0x200f) ||          // zero widths and direction marks
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) || code == 0xfeff ||
         (code >= 0xfff9 && code <= 0xfffb) || (code >= 0xe0000 && code <= 0xe0fff);  // tags and variation selectors
}

void append_escaped(std::string& out, std::string_view sequence) {
  const std::uint32_t code = decode(sequence);
  switch (code) {
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    case '\\': out += "\\\\"; return;
    case '\'': out += "\\'"; return;
    case '"': out += "\\\""; return;
    default: break;
  }
  if (!is_hidden(code)) {
    out += sequence;
  } else if (code < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
  } else if (code < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", code);
  }
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool past_unicode = first == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || past_unicode ? 0 : length;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    append_escaped(out, text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

std::string lowercase(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c; });
  return lower;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) + 1 - first);
}

std::string quote(std::string_view name) {
  if (name.size() <= kLongestName) return fmt::format("'{}'", escape(name));
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(name[i]) & 0xc0U) == 0x80; };
  std::size_t head = kLongestName / 2;
  while (head > 0 && continues(head)) --head;
  std::size_t tail = name.size() - kLongestName / 4;
  while (tail < name.size() && continues(tail)) ++tail;
  return fmt::format("'{}…{}' ({} bytes)", escape(name.substr(0, head)), escape(name.substr(tail)), name.size());
}

std::string to_string(Shape shape) {
  constexpr std::size_t kMostDims = 16;
  if (shape.size() <= kMostDims) return fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("[{}, … {} dims]", fmt::join(shape.first(kMostDims), ", "), shape.size());
}

}  // namespace ballast
