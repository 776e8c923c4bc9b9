#include <ballast/tokens.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <ballast/model.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/npy/npy.h"
#include "source/path/path.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{8} << 30;

// Ids with the shape of their array.
struct TokenArray {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint64_t> shape;
};

Result<std::uint32_t> to_id(std::uint64_t index, std::uint64_t magnitude, bool is_negative) {
  if (!is_negative && magnitude <= std::numeric_limits<std::uint32_t>::max()) return static_cast<std::uint32_t>(magnitude);
  return fail(Errc::kCorrupt, "value {} is {}{}, which is not a token id", index, is_negative ? "-" : "", magnitude);
}

template <class T>
Result<std::vector<std::uint32_t>> ids_of(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> ids;
  ids.reserve(bytes.size() / sizeof(T));
  for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    const bool is_negative = std::is_signed_v<T> && value < 0;
    const auto magnitude = is_negative ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    ids.push_back(TRY(to_id(at / sizeof(T), magnitude, is_negative)));
  }
  return ids;
}

Result<std::vector<std::uint32_t>> ids_of(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kU8: return ids_of<std::uint8_t>(bytes);
    case DType::kI8: return ids_of<std::int8_t>(bytes);
    case DType::kU16: return ids_of<std::uint16_t>(bytes);
    case DType::kI16: return ids_of<std::int16_t>(bytes);
    case DType::kU32: return ids_of<std::uint32_t>(bytes);
    case DType::kI32: return ids_of<std::int32_t>(bytes);
    case DType::kU64: return ids_of<std::uint64_t>(bytes);
    case DType::kI64: return ids_of<std::int64_t>(bytes);
    default: return fail(Errc::kUnsupported, "dtype {}; token ids are integers", name(dtype));
  }
}

Result<TokenArray> read_tensor(const Model& model) {
  if (model.tensors().size() != 1) {
    return fail(Errc::kUnsupported, "{} tensors; a file of token ids has one", model.tensors().size());
  }
  const TensorInfo& info = model.tensors().front();
  const Tensor tensor = TRY(model.read(info.name));
  return TokenArray{.ids = TRY(ids_of(info.dtype, tensor.bytes())), .shape = {info.shape.begin(), info.shape.end()}};
}

Result<TokenArray> read_numbers(std::string_view text) {
  TokenArray array;
  const auto is_between = [](char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ',' || c == '[' || c == ']';
  };
  std::size_t lists = 0;
  std::size_t line = 1;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\n') ++line;
    if (text[at] == '[' && ++lists > 1) {
      return fail(Errc::kUnsupported, "line {}: more than one list; save ids in two dimensions as .npy or .safetensors", line);
    }
    if (is_between(text[at])) {
      ++at;
      continue;
    }
    std::uint32_t id = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc{} || (stop != text.data() + text.size() && !is_between(*stop))) {
      const std::size_t end = std::min(text.find_first_of(" \n\r\t,[]", at), text.size());
      return fail(Errc::kUnsupported,
                  "line {}: {} is not a token id; text must be tokenized first: use --text with the Python package", line,
                  quote(text.substr(at, end - at)));
    }
    array.ids.push_back(id);
    at = static_cast<std::size_t>(stop - text.data());
  }
  array.shape = {array.ids.size()};
  return array;
}

Result<TokenArray> read_array(const std::string& path) {
  if (path.ends_with(".safetensors")) return read_tensor(TRY(Model::open(path)));
  const auto source = TRY(open_path(path));
  if (source->size() > kMostBytes)
    return fail(Errc::kUnsupported, "{} bytes, at most {} can be read", source->size(), kMostBytes);
  std::vector<std::byte> bytes(source->size());
  TRY(source->read_at(0, bytes));
  if (!is_npy(bytes)) return read_numbers({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const NpyArray array = TRY(parse_npy(bytes));
  return TokenArray{.ids = TRY(ids_of(array.dtype, array.bytes)), .shape = array.shape};
}

// The name of a file in memory, which the Python package makes of text: its path says only the number of a descriptor.
std::string shown_path(const std::string& path) {
  constexpr std::string_view kBegin = "/memfd:";
  constexpr std::string_view kEnd = " (deleted)";
  if (!path.starts_with("/dev/fd/")) return path;
  std::error_code failed;
  const std::string target = std::filesystem::read_symlink("/proc/self/fd/" + path.substr(8), failed).string();
  if (failed || !target.starts_with(kBegin) || !target.ends_with(kEnd)) return path;
  return target.substr(kBegin.size(), target.size() - kBegin.size() - kEnd.size());
}

}  // namespace

Result<TokenWindows> cut_windows(std::vector<std::uint32_t> ids, std::uint64_t length, const std::string& path) {
  if (length < 2) return fail(Errc::kInvalidArgument, "length is {}, it must be at least 2", length);
  if (ids.size() < 2) return fail(Errc::kCorrupt, "{}: {} tokens; at least 2 are needed", escape(path), ids.size());
  TokenWindows windows{.length = std::min<std::uint64_t>(length, ids.size()), .path = path};
  windows.unused = ids.size() % windows.length;
  ids.resize(ids.size() - windows.unused);
  windows.ids = std::move(ids);
  return windows;
}

Result<TokenWindows> make_windows(std::vector<std::uint32_t> ids, std::span<const std::uint64_t> shape, std::uint64_t length,
                                  const std::string& path) {
  if (shape.size() == 1) return cut_windows(std::move(ids), length, path);
  if (shape.size() != 2) {
    return fail(Errc::kUnsupported, "{}: shape {}; token ids have one or two dimensions", escape(path), to_string(shape));
  }
  if (ids.empty() || shape[1] < 2) {
    return fail(Errc::kCorrupt, "{}: shape {}; each row needs at least 2 tokens", escape(path), to_string(shape));
  }
  if (ids.size() % shape[1] != 0 || ids.size() / shape[1] != shape[0]) {
    return fail(Errc::kInvalidArgument, "{}: {} ids do not have shape {}", escape(path), ids.size(), to_string(shape));
  }
  return TokenWindows{.ids = std::move(ids), .length = shape[1], .path = path};
}

Result<TokenWindows> read_tokens(const std::string& path, std::uint64_t length) {
  auto array = read_array(path);
  if (!array) {
    const bool is_named = array.error().message.starts_with(escape(path));
    return is_named ? std::unexpected(std::move(array.error())) : fail_at(escape(path), std::move(array.error()));
  }
  return make_windows(std::move(array->ids), array->shape, length, shown_path(path));
}

TokenWindows spread_windows(TokenWindows tokens, std::uint64_t count) {
  const std::uint64_t all = tokens.count();
  if (count == 0 || count >= all) return tokens;
  std::vector<std::uint32_t> ids;
  ids.reserve(count * tokens.length);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto first = tokens.ids.begin() + static_cast<std::ptrdiff_t>(i * all / count * tokens.length);
    ids.insert(ids.end(), first, first + static_cast<std::ptrdiff_t>(tokens.length));
  }
  tokens.ids = std::move(ids);
  return tokens;
}

}  // namespace ballast
