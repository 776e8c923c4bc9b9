#include "display_width.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace ballast::cli {
namespace {

// Unicode 14. Each pair is a range: its first code point and the one after its last.

// East Asian Width W or F.
constexpr auto kWide = std::to_array<std::uint32_t>(
    {0x1100,  0x1160,  0x231a,  0x231c,  0x2329,  0x232b,  0x23e9,  0x23ed,  0x23f0,  0x23f1,  0x23f3,  0x23f4,  0x25fd,  0x25ff,
     0x2614,  0x2616,  0x2648,  0x2654,  0x267f,  0x2680,  0x2693,  0x2694,  0x26a1,  0x26a2,  0x26aa,  0x26ac,  0x26bd,  0x26bf,
     0x26c4,  0x26c6,  0x26ce,  0x26cf,  0x26d4,  0x26d5,  0x26ea,  0x26eb,  0x26f2,  0x26f4,  0x26f5,  0x26f6,  0x26fa,  0x26fb,
     0x26fd,  0x26fe,  0x2705,  0x2706,  0x270a,  0x270c,  0x2728,  0x2729,  0x274c,  0x274d,  0x274e,  0x274f,  0x2753,  0x2756,
     0x2757,  0x2758,  0x2795,  0x2798,  0x27b0,  0x27b1,  0x27bf,  0x27c0,  0x2b1b,  0x2b1d,  0x2b50,  0x2b51,  0x2b55,  0x2b56,
     0x2e80,  0x303f,  0x3041,  0x3248,  0x3250,  0x4dc0,  0x4e00,  0xa4c7,  0xa960,  0xa97d,  0xac00,  0xd7a4,  0xf900,  0xfada,
     0xfe10,  0xfe6c,  0xff01,  0xff61,  0xffe0,  0xffe7,  0x16fe0, 0x18d09, 0x1aff0, 0x1b2fc, 0x1f004, 0x1f005, 0x1f0cf, 0x1f0d0,
     0x1f18e, 0x1f18f, 0x1f191, 0x1f19b, 0x1f200, 0x1f321, 0x1f32d, 0x1f336, 0x1f337, 0x1f37d, 0x1f37e, 0x1f394, 0x1f3a0, 0x1f3cb,
     0x1f3cf, 0x1f3d4, 0x1f3e0, 0x1f3f1, 0x1f3f4, 0x1f3f5, 0x1f3f8, 0x1f43f, 0x1f440, 0x1f441, 0x1f442, 0x1f4fd, 0x1f4ff, 0x1f53e,
     0x1f54b, 0x1f54f, 0x1f550, 0x1f568, 0x1f57a, 0x1f57b, 0x1f595, 0x1f597, 0x1f5a4, 0x1f5a5, 0x1f5fb, 0x1f650, 0x1f680, 0x1f6c6,
     0x1f6cc, 0x1f6cd, 0x1f6d0, 0x1f6d3, 0x1f6d5, 0x1f6e0, 0x1f6eb, 0x1f6ed, 0x1f6f4, 0x1f6fd, 0x1f7e0, 0x1f7f1, 0x1f90c, 0x1f93b,
     0x1f93c, 0x1f946, 0x1f947, 0x1fa00, 0x1fa70, 0x1faf7, 0x20000, 0x2ebe1, 0x2f800, 0x3134b});

// General category Mn or Me, and the vowels and final consonants of Hangul, which join the syllable before them.
constexpr auto kCombining = std::to_array<std::uint32_t>(
    {0x0300,  0x0370,  0x0483,  0x048a,  0x0591,  0x05be,  0x05bf,  0x05c0,  0x05c1,  0x05c3,  0x05c4,  0x05c6,  0x05c7,  0x05c8,
     0x0610,  0x061b,  0x064b,  0x0660,  0x0670,  0x0671,  0x06d6,  0x06dd,  0x06df,  0x06e5,  0x06e7,  0x06e9,  0x06ea,  0x06ee,
     0x0711,  0x0712,  0x0730,  0x074b,  0x07a6,  0x07b1,  0x07eb,  0x07f4,  0x07fd,  0x07fe,  0x0816,  0x081a,  0x081b,  0x0824,
     0x0825,  0x0828,  0x0829,  0x082e,  0x0859,  0x085c,  0x0898,  0x08a0,  0x08ca,  0x08e2,  0x08e3,  0x0903,  0x093a,  0x093b,
     0x093c,  0x093d,  0x0941,  0x0949,  0x094d,  0x094e,  0x0951,  0x0958,  0x0962,  0x0964,  0x0981,  0x0982,  0x09bc,  0x09bd,
     0x09c1,  0x09c5,  0x09cd,  0x09ce,  0x09e2,  0x09e4,  0x09fe,  0x0a03,  0x0a3c,  0x0a3d,  0x0a41,  0x0a52,  0x0a70,  0x0a72,
     0x0a75,  0x0a76,  0x0a81,  0x0a83,  0x0abc,  0x0abd,  0x0ac1,  0x0ac9,  0x0acd,  0x0ace,  0x0ae2,  0x0ae4,  0x0afa,  0x0b02,
     0x0b3c,  0x0b3d,  0x0b3f,  0x0b40,  0x0b41,  0x0b45,  0x0b4d,  0x0b57,  0x0b62,  0x0b64,  0x0b82,  0x0b83,  0x0bc0,  0x0bc1,
     0x0bcd,  0x0bce,  0x0c00,  0x0c01,  0x0c04,  0x0c05,  0x0c3c,  0x0c3d,  0x0c3e,  0x0c41,  0x0c46,  0x0c57,  0x0c62,  0x0c64,
     0x0c81,  0x0c82,  0x0cbc,  0x0cbd,  0x0cbf,  0x0cc0,  0x0cc6,  0x0cc7,  0x0ccc,  0x0cce,  0x0ce2,  0x0ce4,  0x0d00,  0x0d02,
     0x0d3b,  0x0d3d,  0x0d41,  0x0d45,  0x0d4d,  0x0d4e,  0x0d62,  0x0d64,  0x0d81,  0x0d82,  0x0dca,  0x0dcb,  0x0dd2,  0x0dd7,
     0x0e31,  0x0e32,  0x0e34,  0x0e3b,  0x0e47,  0x0e4f,  0x0eb1,  0x0eb2,  0x0eb4,  0x0ebd,  0x0ec8,  0x0ece,  0x0f18,  0x0f1a,
     0x0f35,  0x0f36,  0x0f37,  0x0f38,  0x0f39,  0x0f3a,  0x0f71,  0x0f7f,  0x0f80,  0x0f85,  0x0f86,  0x0f88,  0x0f8d,  0x0fbd,
     0x0fc6,  0x0fc7,  0x102d,  0x1031,  0x1032,  0x1038,  0x1039,  0x103b,  0x103d,  0x103f,  0x1058,  0x105a,  0x105e,  0x1061,
     0x1071,  0x1075,  0x1082,  0x1083,  0x1085,  0x1087,  0x108d,  0x108e,  0x109d,  0x109e,  0x1160,  0x1200,  0x135d,  0x1360,
     0x1712,  0x1715,  0x1732,  0x1734,  0x1752,  0x1754,  0x1772,  0x1774,  0x17b4,  0x17b6,  0x17b7,  0x17be,  0x17c6,  0x17c7,
     0x17c9,  0x17d4,  0x17dd,  0x17de,  0x180b,  0x180e,  0x180f,  0x1810,  0x1885,  0x1887,  0x18a9,  0x18aa,  0x1920,  0x1923,
     0x1927,  0x1929,  0x1932,  0x1933,  0x1939,  0x193c,  0x1a17,  0x1a19,  0x1a1b,  0x1a1c,  0x1a56,  0x1a57,  0x1a58,  0x1a61,
     0x1a62,  0x1a63,  0x1a65,  0x1a6d,  0x1a73,  0x1a80,  0x1ab0,  0x1b04,  0x1b34,  0x1b35,  0x1b36,  0x1b3b,  0x1b3c,  0x1b3d,
     0x1b42,  0x1b43,  0x1b6b,  0x1b74,  0x1b80,  0x1b82,  0x1ba2,  0x1ba6,  0x1ba8,  0x1baa,  0x1bab,  0x1bae,  0x1be6,  0x1be7,
     0x1be8,  0x1bea,  0x1bed,  0x1bee,  0x1bef,  0x1bf2,  0x1c2c,  0x1c34,  0x1c36,  0x1c38,  0x1cd0,  0x1cd3,  0x1cd4,  0x1ce1,
     0x1ce2,  0x1ce9,  0x1ced,  0x1cee,  0x1cf4,  0x1cf5,  0x1cf8,  0x1cfa,  0x1dc0,  0x1e00,  0x20d0,  0x20f1,  0x2cef,  0x2cf2,
     0x2d7f,  0x2d80,  0x2de0,  0x2e00,  0x302a,  0x302e,  0x3099,  0x309b,  0xa66f,  0xa673,  0xa674,  0xa67e,  0xa69e,  0xa6a0,
     0xa6f0,  0xa6f2,  0xa802,  0xa803,  0xa806,  0xa807,  0xa80b,  0xa80c,  0xa825,  0xa827,  0xa82c,  0xa82d,  0xa8c4,  0xa8c6,
     0xa8e0,  0xa8f2,  0xa8ff,  0xa900,  0xa926,  0xa92e,  0xa947,  0xa952,  0xa980,  0xa983,  0xa9b3,  0xa9b4,  0xa9b6,  0xa9ba,
     0xa9bc,  0xa9be,  0xa9e5,  0xa9e6,  0xaa29,  0xaa2f,  0xaa31,  0xaa33,  0xaa35,  0xaa37,  0xaa43,  0xaa44,  0xaa4c,  0xaa4d,
     0xaa7c,  0xaa7d,  0xaab0,  0xaab1,  0xaab2,  0xaab5,  0xaab7,  0xaab9,  0xaabe,  0xaac0,  0xaac1,  0xaac2,  0xaaec,  0xaaee,
     0xaaf6,  0xaaf7,  0xabe5,  0xabe6,  0xabe8,  0xabe9,  0xabed,  0xabee,  0xfb1e,  0xfb1f,  0xfe00,  0xfe10,  0xfe20,  0xfe30,
     0x101fd, 0x101fe, 0x102e0, 0x102e1, 0x10376, 0x1037b, 0x10a01, 0x10a10, 0x10a38, 0x10a40, 0x10ae5, 0x10ae7, 0x10d24, 0x10d28,
     0x10eab, 0x10ead, 0x10f46, 0x10f51, 0x10f82, 0x10f86, 0x11001, 0x11002, 0x11038, 0x11047, 0x11070, 0x11071, 0x11073, 0x11075,
     0x1107f, 0x11082, 0x110b3, 0x110b7, 0x110b9, 0x110bb, 0x110c2, 0x110c3, 0x11100, 0x11103, 0x11127, 0x1112c, 0x1112d, 0x11135,
     0x11173, 0x11174, 0x11180, 0x11182, 0x111b6, 0x111bf, 0x111c9, 0x111cd, 0x111cf, 0x111d0, 0x1122f, 0x11232, 0x11234, 0x11235,
     0x11236, 0x11238, 0x1123e, 0x1123f, 0x112df, 0x112e0, 0x112e3, 0x112eb, 0x11300, 0x11302, 0x1133b, 0x1133d, 0x11340, 0x11341,
     0x11366, 0x11375, 0x11438, 0x11440, 0x11442, 0x11445, 0x11446, 0x11447, 0x1145e, 0x1145f, 0x114b3, 0x114b9, 0x114ba, 0x114bb,
     0x114bf, 0x114c1, 0x114c2, 0x114c4, 0x115b2, 0x115b6, 0x115bc, 0x115be, 0x115bf, 0x115c1, 0x115dc, 0x115de, 0x11633, 0x1163b,
     0x1163d, 0x1163e, 0x1163f, 0x11641, 0x116ab, 0x116ac, 0x116ad, 0x116ae, 0x116b0, 0x116b6, 0x116b7, 0x116b8, 0x1171d, 0x11720,
     0x11722, 0x11726, 0x11727, 0x1172c, 0x1182f, 0x11838, 0x11839, 0x1183b, 0x1193b, 0x1193d, 0x1193e, 0x1193f, 0x11943, 0x11944,
     0x119d4, 0x119dc, 0x119e0, 0x119e1, 0x11a01, 0x11a0b, 0x11a33, 0x11a39, 0x11a3b, 0x11a3f, 0x11a47, 0x11a48, 0x11a51, 0x11a57,
     0x11a59, 0x11a5c, 0x11a8a, 0x11a97, 0x11a98, 0x11a9a, 0x11c30, 0x11c3e, 0x11c3f, 0x11c40, 0x11c92, 0x11ca8, 0x11caa, 0x11cb1,
     0x11cb2, 0x11cb4, 0x11cb5, 0x11cb7, 0x11d31, 0x11d46, 0x11d47, 0x11d48, 0x11d90, 0x11d92, 0x11d95, 0x11d96, 0x11d97, 0x11d98,
     0x11ef3, 0x11ef5, 0x16af0, 0x16af5, 0x16b30, 0x16b37, 0x16f4f, 0x16f50, 0x16f8f, 0x16f93, 0x16fe4, 0x16fe5, 0x1bc9d, 0x1bc9f,
     0x1cf00, 0x1cf47, 0x1d167, 0x1d16a, 0x1d17b, 0x1d183, 0x1d185, 0x1d18c, 0x1d1aa, 0x1d1ae, 0x1d242, 0x1d245, 0x1da00, 0x1da37,
     0x1da3b, 0x1da6d, 0x1da75, 0x1da76, 0x1da84, 0x1da85, 0x1da9b, 0x1dab0, 0x1e000, 0x1e02b, 0x1e130, 0x1e137, 0x1e2ae, 0x1e2af,
     0x1e2ec, 0x1e2f0, 0x1e8d0, 0x1e8d7, 0x1e944, 0x1e94b, 0xe0100, 0xe01f0});

template <std::size_t kCount>
bool contains(const std::array<std::uint32_t, kCount>& ranges, std::uint32_t code) {
  return (std::ranges::upper_bound(ranges, code) - ranges.begin()) % 2 == 1;
}

std::size_t columns_of(std::uint32_t code) {
  if (code < kCombining.front()) return 1;
  if (contains(kCombining, code)) return 0;
  return contains(kWide, code) ? 2 : 1;
}

struct Character {
  std::size_t bytes = 1;
  std::size_t columns = 1;
};

// The code point that `text`, which is not empty, begins with.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = byte(0) < 0xc0 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size()) return {};
  std::uint32_t code = byte(0) & (0xffU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) code = code << 6U | (byte(i) & 0x3fU);
  return {.bytes = bytes, .columns = columns_of(code)};
}

// How many bytes at the start of `text` fit into `columns`, with the marks that combine with the last character.
std::size_t prefix_bytes(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (next.columns > columns) break;
    columns -= next.columns;
    at += next.bytes;
  }
  return at;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The offset of the longest end of `text` that is at most `columns` wide and does not begin with a combining mark.
std::size_t suffix_start(std::string_view text, std::size_t columns) {
  std::size_t width = display_width(text);
  std::size_t at = 0;
  while (at < text.size()) {
    const Character next = first_character(text.substr(at));
    if (width <= columns && next.columns > 0) break;
    width -= next.columns;
    at += next.bytes;
  }
  return at;
}

struct Cut {
  std::string text;
  bool has_last_number = true;
};

// The first `start` columns of `text`, an …, and as much of its end as fits. The end does not begin inside a number, or layer 12
// would look like layer 2.
Cut cut(std::string_view text, std::size_t columns, std::size_t start) {
  if (display_width(text) <= columns) return {.text = std::string(text)};
  std::size_t tail = suffix_start(text, columns - 1 - start);
  std::size_t digits = 0;
  if (tail < text.size() && is_digit(text[tail])) {
    while (digits < start && digits < tail && is_digit(text[tail - digits - 1])) ++digits;
  }
  tail -= digits;
  const std::size_t last_digit = text.find_last_of("0123456789");
  constexpr std::string_view kDots = "…";
  std::string_view head = text.substr(0, prefix_bytes(text, start - digits));
  std::string_view end = text.substr(tail);
  if (head.ends_with(kDots)) head.remove_suffix(kDots.size());  // of a row for several layers: layers.{0…3}
  if (end.starts_with(kDots)) end.remove_prefix(kDots.size());
  return {.text = fmt::format("{}{}{}", head, kDots, end),
          .has_last_number = last_digit == std::string_view::npos || last_digit >= tail};
}

// Names of a table that look alike when cut, and how many bytes all of them have in common at their start and end.
struct Alike {
  std::vector<std::size_t> rows;
  std::size_t prefix = 0;
  std::size_t suffix = 0;
};

std::vector<Alike> find_alike(std::span<const std::string> names, const std::vector<std::string>& texts) {
  std::unordered_map<std::string_view, std::vector<std::size_t>> by_text;
  for (std::size_t i = 0; i < names.size(); ++i) by_text[texts[i]].push_back(i);
  std::vector<Alike> found;
  for (auto& [text, rows] : by_text) {
    const std::string_view first = names[rows.front()];
    Alike alike{.rows = {}, .prefix = first.size(), .suffix = first.size()};
    for (const std::size_t row : rows) {
      const std::string_view other = names[row];
      const auto same_start = std::ranges::mismatch(first, other).in1 - first.begin();
      const auto same_end = std::mismatch(first.rbegin(), first.rend(), other.rbegin(), other.rend()).first - first.rbegin();
      alike.prefix = std::min(alike.prefix, static_cast<std::size_t>(same_start));
      alike.suffix = std::min(alike.suffix, static_cast<std::size_t>(same_end));
    }
    if (alike.prefix == first.size()) continue;  // all of them are one name
    alike.rows = std::move(rows);
    found.push_back(std::move(alike));
  }
  return found;
}

// Whether a character can begin at `at`: not inside a number, a code point, or a letter with its marks.
bool can_begin(std::string_view text, std::size_t at) {
  if (at == 0 || at >= text.size()) return true;
  if ((static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80) return false;
  return !is_digit(text[at - 1]) && first_character(text.substr(at)).columns > 0;
}

// The start of the name, what differs from the others, and its end, with an … for what is between. The start has `eighths` of the
// room that the difference leaves.
std::string cut_around(std::string_view name, std::size_t columns, const Alike& alike, std::size_t eighths) {
  std::size_t from = alike.prefix;
  std::size_t to = std::max(from, name.size() - alike.suffix);
  while (!can_begin(name, from)) --from;
  while (!can_begin(name, to) || (to < name.size() && to > 0 && is_digit(name[to]))) ++to;
  constexpr std::size_t kDots = 2;
  const std::string difference = beginning(name.substr(from, to - from), columns - kDots);
  to = from + difference.size();
  std::size_t room = columns - kDots - display_width(difference);
  std::string text(name.substr(0, prefix_bytes(name.substr(0, from), room * eighths / 8)));
  room -= display_width(text);
  if (text.size() < from) text += "…";
  text += difference;
  const std::string_view rest = name.substr(to);
  std::size_t end = suffix_start(rest, room);
  while (!can_begin(rest, end)) ++end;
  if (end > 0) text += "…";
  return text.append(rest.substr(end));
}

// Shows where names differ that `texts` shows alike, if more names can be told apart then.
void tell_apart(std::span<const std::string> names, std::span<const std::size_t> columns, std::vector<std::string>& texts) {
  constexpr std::size_t kNarrowest = 8;
  const auto distinct = [](const std::vector<std::string>& all) {
    return std::unordered_set<std::string_view>(all.begin(), all.end()).size();
  };
  const std::vector<Alike> groups = find_alike(names, texts);
  std::size_t most = distinct(texts);
  std::vector<std::string> best;
  for (const std::size_t eighths : {4, 5, 3, 6, 2, 1, 0}) {
    if (groups.empty()) break;
    std::vector<std::string> tried = texts;
    for (const Alike& alike : groups) {
      for (const std::size_t row : alike.rows) {
        if (columns[row] >= kNarrowest) tried[row] = cut_around(names[row], columns[row], alike, eighths);
      }
    }
    const std::size_t count = distinct(tried);
    if (count <= most) continue;
    most = count;
    best = std::move(tried);
  }
  if (!best.empty()) texts = std::move(best);
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    const Character next = first_character(text);
    columns += next.columns;
    text.remove_prefix(next.bytes);
  }
  return columns;
}

std::string beginning(std::string_view text, std::size_t columns) {
  return std::string(text.substr(0, prefix_bytes(text, columns)));
}

std::string shortened(const std::string& text, std::size_t columns) { return cut(text, columns, (columns - 1) / 2).text; }

std::vector<std::string> shortened(std::span<const std::string> names, std::span<const std::size_t> columns) {
  std::vector<std::string> best;
  std::size_t most = 0;
  for (const std::size_t eighths : {4, 3, 5, 2, 6, 1}) {  // of the room are for the start
    std::vector<std::string> texts;
    std::size_t with_number = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      Cut name = cut(names[i], columns[i], (columns[i] - 1) * eighths / 8);
      with_number += name.has_last_number ? 1 : 0;
      texts.push_back(std::move(name.text));
    }
    const std::size_t score = with_number + std::unordered_set<std::string_view>(texts.begin(), texts.end()).size();
    if (score <= most) continue;
    most = score;
    best = std::move(texts);
    if (most == 2 * names.size()) break;
  }
  tell_apart(names, columns, best);
  return best;
}

}  // namespace ballast::cli
