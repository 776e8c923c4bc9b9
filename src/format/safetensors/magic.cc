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

constexpr std::string_view kPickle =
    "; this looks like a Python pickle, such as torch.save() writes: save the weights as SafeTensors first";

constexpr std::array kMagics{
    Magic{.bytes = "version https://git-lfs"sv,
          .guess = "; this looks like a Git LFS pointer: run `git lfs pull` to download the file"},
    Magic{.bytes = "PK\x03\x04"sv,
          .guess = "; this looks like a ZIP archive, such as torch.save() writes: save the weights as SafeTensors first"},
    Magic{.bytes = "GGUF"sv,
          .guess = "; this looks like a GGUF file, which Ballast does not read: use the SafeTensors version of the model"},
    Magic{.bytes = "PAR1"sv, .guess = "; this looks like a Parquet file: give the path of its directory"},
    Magic{.bytes = "\x93NUMPY"sv, .guess = "; this looks like a NumPy array: save it as SafeTensors first"},
    Magic{.bytes = "\x89HDF"sv, .guess = "; this looks like an HDF5 file: save the weights as SafeTensors first"},
    Magic{.bytes = "\x1f\x8b"sv, .guess = "; this looks like a gzip file: decompress it first"},
    Magic{.bytes = "\x80\x02"sv, .guess = kPickle},
    Magic{.bytes = "\x80\x04"sv, .guess = kPickle},
    Magic{.bytes = "\x80\x05"sv, .guess = kPickle},
    Magic{.bytes = "<"sv, .guess = "; this looks like an HTML page, perhaps a server's error message: download the file again"},
    Magic{.bytes = "{"sv, .guess = "; this looks like JSON: give the path of the weights or of their directory"},
};

// A single byte may also be the low byte of a header's length, so the bytes after it must be text too.
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
