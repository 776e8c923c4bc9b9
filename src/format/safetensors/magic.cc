#include "format/safetensors/magic.h"

#include <algorithm>
#include <array>

namespace ballast::safetensors {
namespace {

using std::string_view_literals::operator""sv;

struct Magic {
  std::string_view bytes;
  std::string_view guess;
};

constexpr std::array kMagics{
    Magic{.bytes = "version https://git-lfs"sv,
          .guess = "; this looks like a Git LFS pointer: fetch the file itself with `git lfs pull`"},
    Magic{.bytes = "PK\x03\x04"sv, .guess = "; this looks like a ZIP archive, such as torch.save writes"},
    Magic{.bytes = "GGUF"sv, .guess = "; this looks like a GGUF file"},
    Magic{.bytes = "PAR1"sv, .guess = "; this looks like a Parquet file"},
    Magic{.bytes = "\x93NUMPY"sv, .guess = "; this looks like a NumPy array"},
    Magic{.bytes = "\x89HDF"sv, .guess = "; this looks like an HDF5 file"},
    Magic{.bytes = "\x1f\x8b"sv, .guess = "; this looks like a gzip file: unpack it first"},
    Magic{.bytes = "\x80\x02"sv, .guess = "; this looks like a Python pickle"},
    Magic{.bytes = "\x80\x04"sv, .guess = "; this looks like a Python pickle"},
    Magic{.bytes = "\x80\x05"sv, .guess = "; this looks like a Python pickle"},
    Magic{.bytes = "<"sv, .guess = "; this looks like an HTML page, perhaps a server's error message"},
    Magic{.bytes = "{"sv, .guess = "; this looks like JSON"},
};

// One byte alone may as well be the low end of a header's length: what follows must be text too.
bool is_text(std::string_view front) {
  constexpr std::size_t kLengthBytes = 8;
  return std::ranges::all_of(front.substr(0, kLengthBytes),
                             [](char c) { return c == '\n' || c == '\r' || c == '\t' || (c >= ' ' && c <= '~'); });
}

}  // namespace

std::string_view guess_format(std::span<const std::byte> front) {
  const std::string_view text(reinterpret_cast<const char*>(front.data()), front.size());
  for (const Magic& magic : kMagics) {
    if (text.starts_with(magic.bytes) && (magic.bytes.size() > 1 || is_text(text))) return magic.guess;
  }
  return {};
}

}  // namespace ballast::safetensors
