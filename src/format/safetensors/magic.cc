#include "format/safetensors/magic.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "base/file_names.h"

namespace ballast::safetensors {
namespace {

// A library whose weights are converted by a line of Python. {0} is the file, {1} the file to write.
struct Library {
  std::string_view looks_like;
  std::string_view python;
};

constexpr std::string_view kLoadTorch =
    "import torch; from safetensors.torch import save_file; "
    "d = torch.load('{0}', map_location='cpu', weights_only=True); d = d.get('state_dict', d); "
    "save_file({{k: v.contiguous().clone() for k, v in d.items()}}, '{1}')";
constexpr Library kPyTorch{.looks_like = "a checkpoint of PyTorch", .python = kLoadTorch};
constexpr Library kZip{.looks_like = "a ZIP archive, such as torch.save() writes", .python = kLoadTorch};
constexpr Library kPickle{.looks_like = "a Python pickle, such as torch.save() writes", .python = kLoadTorch};
constexpr Library kTorchScript{.looks_like = "a model of TorchScript",
                               .python =
                                   "import torch; from safetensors.torch import save_file; "
                                   "d = torch.jit.load('{0}', map_location='cpu').state_dict(); "
                                   "save_file({{k: v.contiguous().clone() for k, v in d.items()}}, '{1}')"};
constexpr Library kNumPyArchive{.looks_like = "a NumPy archive",
                                .python =
                                    "import numpy; from safetensors.numpy import save_file; "
                                    "save_file(dict(numpy.load('{0}')), '{1}')"};
constexpr Library kNumPyArray{.looks_like = "a NumPy array",
                              .python =
                                  "import numpy; from safetensors.numpy import save_file; "
                                  "save_file({{'array': numpy.load('{0}')}}, '{1}')"};
constexpr Library kHdf5{.looks_like = "an HDF5 file",
                        .python =
                            "import h5py; from safetensors.numpy import save_file; d = {{}}; "
                            "h5py.File('{0}').visititems(lambda k, v: d.update({{k: v[()]}}) if hasattr(v, 'dtype') else None); "
                            "save_file(d, '{1}')"};
constexpr Library kOnnx{.looks_like = "an ONNX file",
                        .python =
                            "import onnx, onnx.numpy_helper as n; from safetensors.numpy import save_file; "
                            "save_file({{t.name: n.to_array(t) for t in onnx.load('{0}').graph.initializer}}, '{1}')"};
constexpr Library kGguf{.looks_like = "a GGUF file",
                        .python =
                            "import gguf; from safetensors.numpy import save_file; "
                            "save_file({{t.name: gguf.dequantize(t.data, t.tensor_type) "
                            "for t in gguf.GGUFReader('{0}').tensors}}, '{1}')"};

constexpr std::string_view kTorchScriptSuffix = ".jit";

struct Suffix {
  std::string_view suffix;
  const Library* library;
};

constexpr std::array kSuffixes{
    Suffix{.suffix = ".bin", .library = &kPyTorch},
    Suffix{.suffix = ".pt", .library = &kPyTorch},
    Suffix{.suffix = ".pth", .library = &kPyTorch},
    Suffix{.suffix = ".ckpt", .library = &kPyTorch},
    Suffix{.suffix = kTorchScriptSuffix, .library = &kTorchScript},
    Suffix{.suffix = ".npz", .library = &kNumPyArchive},
    Suffix{.suffix = ".npy", .library = &kNumPyArray},
    Suffix{.suffix = ".h5", .library = &kHdf5},
    Suffix{.suffix = ".onnx", .library = &kOnnx},
    Suffix{.suffix = ".gguf", .library = &kGguf},
};

// By the first bytes: a library, or a text.
struct Magic {
  std::string_view bytes;
  const Library* library = nullptr;
  std::string_view guess;
};

constexpr std::string_view kLfs = "version https://git-lfs";

constexpr std::array kMagics{
    Magic{.bytes = "PK\x03\x04", .library = &kZip},
    Magic{.bytes = "GGUF", .library = &kGguf},
    Magic{.bytes = "PAR1", .guess = "; this looks like a Parquet file: give the path of its directory"},
    Magic{.bytes = "\x93NUMPY", .library = &kNumPyArray},
    Magic{.bytes = "\x89HDF", .library = &kHdf5},
    Magic{.bytes = "\x1f\x8b", .guess = "; this looks like a gzip file: decompress it first"},
    Magic{.bytes = "\x80\x02", .library = &kPickle},
    Magic{.bytes = "\x80\x04", .library = &kPickle},
    Magic{.bytes = "\x80\x05", .library = &kPickle},
    Magic{.bytes = "<", .guess = "; this looks like an HTML page, perhaps a server's error message: download the file again"},
    Magic{.bytes = "{", .guess = "; this looks like JSON: give the path of the weights or of their directory"},
};

// A single byte may also be the low byte of a header's length, so the bytes after it must be text too.
bool is_text(std::string_view front) {
  constexpr std::size_t kLengthBytes = 8;
  return std::ranges::all_of(front.substr(0, kLengthBytes),
                             [](char c) { return c == '\n' || c == '\r' || c == '\t' || (c >= ' ' && c <= '~'); });
}

std::string_view text_of(std::span<const std::byte> front) { return {reinterpret_cast<const char*>(front.data()), front.size()}; }

// Whether a shell and a Python string take the path as it is.
bool is_plain(std::string_view path) {
  return !path.empty() && path.find("://") == std::string_view::npos && std::ranges::all_of(path, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || std::string_view("._-+/").contains(c);
  });
}

// x/model.safetensors for x/pytorch_model.bin
std::string converted_name(std::string_view path) {
  constexpr std::string_view kPrefix = "pytorch_";
  const std::size_t folder = path.rfind('/') + 1;  // 0 without a folder
  std::string_view name = path.substr(folder);
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return fmt::format("{}{}{}", path.substr(0, folder), name.substr(0, name.rfind('.')), kSafetensorsSuffix);
}

std::string advice(const Library& library, std::string_view path) {
  const bool plain = is_plain(path);
  const std::string from = plain ? std::string(path) : "FILE";
  const std::string to = plain ? converted_name(path) : "model.safetensors";
  return fmt::format("; this looks like {}; convert it: python3 -c \"{}\"", library.looks_like,
                     fmt::format(fmt::runtime(library.python), from, to));
}

// NumPy's archives are ZIP files, too. The first local header has the length of its name at byte 26 and the name at byte 30.
bool is_numpy_archive(std::string_view zip) {
  constexpr std::size_t kLengthAt = 26;
  constexpr std::size_t kNameAt = 30;
  if (zip.size() < kNameAt) return false;
  return zip.substr(kNameAt, static_cast<unsigned char>(zip[kLengthAt])).ends_with(".npy");
}

}  // namespace

std::optional<std::uint64_t> lfs_size(std::span<const std::byte> front) {
  constexpr std::size_t kMost = 1024;
  constexpr std::string_view kSize = "\nsize ";
  const std::string_view text = text_of(front);
  const std::size_t at = text.find(kSize);
  if (text.size() >= kMost || !text.starts_with(kLfs) || at == std::string_view::npos) return std::nullopt;
  std::uint64_t size = 0;
  const char* const digits = text.data() + at + kSize.size();
  const auto [stop, error] = std::from_chars(digits, text.data() + text.size(), size);
  return error == std::errc{} && stop != digits ? std::optional(size) : std::nullopt;
}

std::string guess_by_name(std::string_view path) {
  const auto found = std::ranges::find_if(kSuffixes, [&](const Suffix& each) { return path.ends_with(each.suffix); });
  return found == kSuffixes.end() ? std::string() : advice(*found->library, path);
}

std::string guess_format(std::span<const std::byte> front, std::string_view path) {
  const std::string_view text = text_of(front);
  if (text.starts_with(kLfs)) {
    const auto size = lfs_size(front);
    return fmt::format("; this is a Git LFS pointer: not downloaded{}; run `git lfs pull` in its repository",
                       size ? fmt::format(", {} bytes", *size) : "");
  }
  for (const Magic& magic : kMagics) {
    if (!text.starts_with(magic.bytes) || (magic.bytes.size() == 1 && !is_text(text))) continue;
    if (magic.library == nullptr) return std::string(magic.guess);
    const bool is_zip = magic.library == &kZip;
    if (is_zip && is_numpy_archive(text)) return advice(kNumPyArchive, path);
    return advice(is_zip && path.ends_with(kTorchScriptSuffix) ? kTorchScript : *magic.library, path);
  }
  return path.ends_with(".onnx") ? guess_by_name(path) : std::string();  // ONNX begins with no mark
}

}  // namespace ballast::safetensors
