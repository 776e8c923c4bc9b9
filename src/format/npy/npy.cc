#include "format/npy/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct Descriptor {
  DType dtype;
  std::string_view name;
};

constexpr std::array kDescriptors{
    Descriptor{DType::kBool, "|b1"}, Descriptor{DType::kU8, "|u1"},  Descriptor{DType::kI8, "|i1"},
    Descriptor{DType::kI16, "<i2"},  Descriptor{DType::kU16, "<u2"}, Descriptor{DType::kF16, "<f2"},
    Descriptor{DType::kI32, "<i4"},  Descriptor{DType::kU32, "<u4"}, Descriptor{DType::kF32, "<f4"},
    Descriptor{DType::kC64, "<c8"},  Descriptor{DType::kF64, "<f8"}, Descriptor{DType::kI64, "<i8"},
    Descriptor{DType::kU64, "<u8"},
};

// The text after `'key':` in the header, which is a Python dict; empty if it is not there.
std::string_view value_of(std::string_view dict, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string name = fmt::format("{}{}{}:", quote, key, quote);
    if (const std::size_t at = dict.find(name); at != std::string_view::npos) return trimmed(dict.substr(at + name.size()));
  }
  return {};
}

std::optional<DType> find_dtype(std::string_view value) {
  if (value.size() < 2 || (value.front() != '\'' && value.front() != '"')) return std::nullopt;
  const std::string_view name = value.substr(1, value.find(value.front(), 1) - 1);
  for (const Descriptor& descriptor : kDescriptors) {
    // '<u1' and '|u1' are the same.
    if (name == descriptor.name || (name.size() == 3 && name[0] == '<' && name.substr(1) == descriptor.name.substr(1))) {
      return descriptor.dtype;
    }
  }
  return std::nullopt;
}

std::optional<std::vector<std::uint64_t>> find_shape(std::string_view value) {
  if (!value.starts_with('(')) return std::nullopt;
  std::vector<std::uint64_t> shape;
  for (value.remove_prefix(1); !value.empty();) {
    value = trimmed(value);
    if (value.starts_with(')')) return shape;
    std::uint64_t size = 0;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc{}) return std::nullopt;
    shape.push_back(size);
    value = trimmed(value.substr(static_cast<std::size_t>(stop - value.data())));
    if (value.starts_with(',')) value.remove_prefix(1);
  }
  return std::nullopt;
}

}  // namespace

std::string_view npy_descriptor(DType dtype) {
  const auto found = std::ranges::find(kDescriptors, dtype, &Descriptor::dtype);
  return found == kDescriptors.end() ? std::string_view() : found->name;
}

// Magic, length, a Python dict, padding to 64 bytes.
std::string npy_header(DType dtype, Shape shape) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kFixed = 10;
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", npy_descriptor(dtype),
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  dict.append((kAlignment - (kFixed + dict.size() + 1) % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string header(kNpyMagic);
  header.append("\x01\x00", 2);
  header += static_cast<char>(dict.size() & 0xffU);
  header += static_cast<char>(dict.size() >> 8);
  return header + dict;
}

bool is_npy(std::span<const std::byte> file) {
  return std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(kNpyMagic);
}

Result<NpyArray> parse_npy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto byte = [&](std::size_t at) { return static_cast<std::uint64_t>(file[at]); };
  constexpr std::size_t kVersionAt = 6;
  constexpr std::size_t kLengthAt = 8;
  if (!is_npy(file) || file.size() < kLengthAt + 4) return fail(Errc::kCorrupt, "not an .npy file, or a truncated one");
  const std::uint64_t version = byte(kVersionAt);
  if (version < 1 || version > 3) return fail(Errc::kUnsupported, ".npy version {}, supported are 1 to 3", version);
  const std::size_t dict_at = version == 1 ? kLengthAt + 2 : kLengthAt + 4;
  std::uint64_t length = 0;
  for (std::size_t at = dict_at; at > kLengthAt; --at) length = length << 8 | byte(at - 1);
  if (length > file.size() - dict_at) {
    return fail(Errc::kCorrupt, "the header has {} bytes, the file has {} after its length", length, file.size() - dict_at);
  }
  const std::string_view dict = text.substr(dict_at, length);
  const std::string_view descriptor = value_of(dict, "descr");
  const auto dtype = find_dtype(descriptor);
  if (!dtype) {
    std::string_view stripped = trimmed(descriptor.substr(0, descriptor.find(',')));
    if (stripped.size() > 2) stripped = stripped.substr(1, stripped.size() - 2);
    return fail(Errc::kUnsupported, "dtype {}; save it with a little-endian number type such as int32", quote(stripped));
  }
  if (!value_of(dict, "fortran_order").starts_with("False")) {
    return fail(Errc::kUnsupported, "the array is in Fortran order; save it with numpy.ascontiguousarray()");
  }
  auto shape = find_shape(value_of(dict, "shape"));
  if (!shape) return fail(Errc::kCorrupt, "the header has no shape");
  const auto elements = checked_elements(*shape);
  const auto bytes = elements ? checked_mul(*elements, bits(*dtype) / 8) : std::nullopt;
  const std::uint64_t rest = file.size() - dict_at - length;
  if (!bytes || *bytes != rest) {
    return fail(Errc::kCorrupt, "shape {} of {} needs {} bytes, the file has {}", to_string(*shape), name(*dtype),
                bytes ? fmt::format("{}", *bytes) : "more than 2^64", rest);
  }
  return NpyArray{.dtype = *dtype, .shape = std::move(*shape), .bytes = file.subspan(dict_at + length)};
}

}  // namespace ballast
