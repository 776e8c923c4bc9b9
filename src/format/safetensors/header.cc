#include "format/safetensors/header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/ranges.h>
#include <simdjson.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "format/safetensors/json_scanner.h"
#include "format/safetensors/magic.h"

namespace ballast::safetensors {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

// Estimates the number of tensors in a header of `bytes` from a part of its text. Too high is better than too low: unused
// capacity costs no memory, but a table that must grow is in memory twice.
std::size_t estimate_tensors(std::string_view part, std::size_t bytes) {
  constexpr std::size_t kSample = 4096;
  constexpr std::size_t kTypicalEntry = 96;
  constexpr std::size_t kShortestEntry = 50;  // "":{"dtype":"U8","shape":[],"data_offsets":[0,0]},
  if (part.size() < kSample) return bytes / kShortestEntry;
  const std::string_view sample =
      part.substr((part.size() - kSample) / 2, kSample);  // from the middle, because metadata comes first
  const auto entries = static_cast<std::size_t>(std::ranges::count(sample, '{'));
  return bytes / std::clamp(kSample / (entries + entries / 8 + 1), kShortestEntry, kTypicalEntry);
}

// Parses header text into a table. Does not check the numbers.
class HeaderParser {
 public:
  HeaderParser(Strictness strictness, Header& header) : strict_(strictness == Strictness::kStrict), header_(header) {}

  // Reserves tables for a header of `bytes`, given a part of its text.
  void reserve(std::string_view part, std::size_t bytes) {
    const std::size_t tensors = estimate_tensors(part, bytes);
    header_.tensors.reserve(tensors);
    header_.dims.reserve(2 * tensors);
  }

  // Parses the complete entries of the next part of the text and returns their length; the next part starts there. Stops both at
  // an incomplete entry and at an invalid one.
  std::size_t take_part(std::string_view part) {
    scanner_ = JsonScanner(part, header_.decoded);
    entry_end_ = scanner_.position();
    header_.dims.resize(dims_end_);  // drop those of an incomplete entry
    const auto take_entry = [this](std::string_view key) { return entry(key); };
    if (!ended_) ended_ = any_entry_ ? scanner_.rest_of_object(take_entry) : scanner_.object(take_entry);
    if (ended_ && scanner_.at_end()) return part.size();
    return static_cast<std::size_t>(entry_end_ - part.data());
  }
  bool ended() const { return ended_; }

  // Whether more text could help: an incomplete entry fails at the end of the part, or within a short token there.
  bool failed_at_end(std::string_view part) const {
    constexpr std::size_t kLongestToken = 12;  // \ud83d\ude00
    return scanner_.failed() && scanner_.failed_at() + kLongestToken >= part.size();
  }

  Result<void> parse(std::string_view text) {
    if (take_part(text) == text.size() && ended_) return {};
    if (unknown_dtype_) {
      std::array<std::string_view, kDTypes.size()> names;
      std::ranges::transform(kDTypes, names.begin(), &DTypeInfo::name);
      return fail(Errc::kUnsupported, "tensor {}: unknown dtype {}; known dtypes are {}", quote(current_), quote(*unknown_dtype_),
                  fmt::join(names, ", "));
    }
    const std::string place = current_.data() == nullptr ? "" : fmt::format("tensor {}: ", quote(current_));
    return fail(Errc::kCorrupt, "{}invalid JSON in header: {} at byte {} of {}", place, scanner_.failure(),
                kLengthBytes + scanner_.failed_at(), header_.data_start);
  }

 private:
  bool entry(std::string_view key) {
    if (!(key == kMetadataKey ? metadata() : tensor(key))) return false;
    any_entry_ = true;
    entry_end_ = scanner_.position();
    return true;
  }

  bool metadata() {
    current_ = {};
    if (header_.has_metadata || null_metadata_) return scanner_.fail("duplicate __metadata__");
    if (scanner_.peek() == 'n') return null_metadata_ = scanner_.null();  // MLX writes null
    header_.metadata.clear();                                             // drop those of an incomplete entry
    return header_.has_metadata = scanner_.object([&](std::string_view key) {
      std::string_view value;
      if (!scanner_.string(value)) return false;
      const auto [entry, inserted] = header_.metadata.try_emplace(std::string(key), value);
      if (!inserted && strict_) return scanner_.fail(fmt::format("duplicate metadata key {}", quote(key)));
      if (!inserted) entry->second = value;
      return true;
    });
  }

  bool tensor(std::string_view name) {
    current_ = name;
    info_ = {.name = name};
    first_dim_ = header_.dims.size();
    const bool as_array = scanner_.peek() == '[' && !strict_;
    if (!(as_array ? tensor_array() : tensor_object())) return false;
    info_.shape = {header_.dims.data() + first_dim_, header_.dims.size() - first_dim_};
    dims_end_ = header_.dims.size();
    if (header_.names) info_.name = keep(name);
    header_.tensors.push_back(info_);
    current_ = {};
    return true;
  }

  bool tensor_object() {
    const char* const start = scanner_.position();
    const bool usual = scanner_.skip(R"({"dtype":)") && dtype() && scanner_.skip(R"(,"shape":)") && shape() &&
                       scanner_.skip(R"(,"data_offsets":)") && offsets() && scanner_.skip("}");
    if (usual || scanner_.failed()) return usual;
    scanner_.rewind(start);
    header_.dims.resize(first_dim_);
    return unusual_object();
  }

  // Fields in another order, unknown fields, white space.
  bool unusual_object() {
    enum Field : unsigned { kDtype = 1, kShape = 2, kOffsets = 4 };
    constexpr int kDepthOfFields = 2;
    unsigned seen = 0;
    const auto once = [&](Field field, std::string_view key) {
      if ((seen & field) != 0) return scanner_.fail(fmt::format("duplicate field '{}'", key));
      seen |= field;
      return true;
    };
    const bool parsed = scanner_.object([&](std::string_view key) {
      if (key == "dtype") return once(kDtype, key) && dtype();
      if (key == "shape") return once(kShape, key) && shape();
      if (key == "data_offsets") return once(kOffsets, key) && offsets();
      return scanner_.skip_value(kDepthOfFields);
    });
    if (!parsed) return false;
    if (seen == (kDtype | kShape | kOffsets)) return true;
    return scanner_.fail(fmt::format("missing field '{}'", (seen & kDtype) == 0   ? "dtype"
                                                           : (seen & kShape) == 0 ? "shape"
                                                                                  : "data_offsets"));
  }

  // ["U8", [1], [0, 1]], which the reference implementation happens to accept.
  bool tensor_array() {
    int count = 0;
    const bool parsed = scanner_.array([&] {
      switch (count++) {
        case 0: return dtype();
        case 1: return shape();
        case 2: return offsets();
        default: return scanner_.fail("more than three elements");
      }
    });
    return parsed && (count == 3 || scanner_.fail("fewer than three elements"));
  }

  bool dtype() {
    std::string_view text;
    if (scanner_.peek() == '{' && !strict_) {  // {"U8": null}, which the reference implementation happens to accept
      int count = 0;
      const auto variant = [&](std::string_view key) {
        text = key;
        return count++ == 0 ? scanner_.null() : scanner_.fail("more than one dtype");
      };
      if (!scanner_.object(variant)) return false;
      if (count == 0) return scanner_.fail("no dtype");
    } else if (!scanner_.string(text)) {
      return false;
    }
    if (text == name(last_dtype_)) {  // the common case
      info_.dtype = last_dtype_;
      return true;
    }
    if (const auto parsed = parse_dtype(text)) {
      info_.dtype = last_dtype_ = *parsed;
      return true;
    }
    unknown_dtype_ = text;
    return scanner_.fail("unknown dtype");
  }

  bool shape() {
    return scanner_.array([&] {
      std::uint64_t dim = 0;
      if (!scanner_.whole_number(dim)) return false;
      if (header_.dims.size() == header_.dims.capacity()) grow_dims();
      header_.dims.push_back(dim);
      return true;
    });
  }

  bool offsets() {
    return scanner_.take('[') && scanner_.whole_number(info_.begin) && scanner_.take(',') && scanner_.whole_number(info_.end) &&
           scanner_.take(']');
  }

  // Always fits: all names together are shorter than the text.
  std::string_view keep(std::string_view name) {
    char* const place = reinterpret_cast<char*>(header_.names.get()) + names_end_;
    std::memcpy(place, name.data(), name.size());
    names_end_ += name.size();
    return {place, name.size()};
  }

  // Shapes point into `dims`, so they must be updated when it moves.
  [[gnu::cold]] void grow_dims() {
    LargeVector<std::uint64_t> larger;
    larger.reserve(std::max<std::size_t>(2 * header_.dims.size(), 16));
    larger.assign(header_.dims.begin(), header_.dims.end());
    for (TensorInfo& tensor : header_.tensors) {
      tensor.shape = {larger.data() + (tensor.shape.data() - header_.dims.data()), tensor.shape.size()};
    }
    header_.dims = std::move(larger);
  }

  bool strict_;
  Header& header_;
  JsonScanner scanner_{{}, header_.decoded};
  bool any_entry_ = false;
  bool ended_ = false;
  const char* entry_end_ = nullptr;  // end of the last complete entry
  bool null_metadata_ = false;
  std::optional<std::string_view> unknown_dtype_;
  std::string_view current_;
  DType last_dtype_ = DType::kF32;
  TensorInfo info_;
  std::size_t first_dim_ = 0;
  std::size_t dims_end_ = 0;  // end of the last complete tensor's dims
  std::size_t names_end_ = 0;
};

// Of entries with the same name, keeps the last, like a map that is filled in order.
void drop_overwritten(LargeVector<TensorInfo>& tensors) {
  NameIndex index(tensors.size());
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[kept] = tensors[i];
    if (const auto earlier = index.insert(tensors, kept)) {
      tensors[*earlier] = tensors[i];
    } else {
      ++kept;
    }
  }
  tensors.resize(kept);
}

Result<void> check_names(Header& header) {
  header.index = NameIndex(header.tensors.size());
  const auto duplicate = header.index.insert_all(header.tensors);
  if (!duplicate) return {};
  const TensorInfo& a = header.tensors[duplicate->first];
  const TensorInfo& b = header.tensors[duplicate->second];
  return fail(Errc::kCorrupt, "duplicate tensor {}: once at [{}, {}], once at [{}, {}]", quote(a.name), a.begin, a.end, b.begin,
              b.end);
}

// The checks of the reference implementation on one tensor, in the same order. `expected` is the end of the previous tensor.
Result<void> check_tensor(const TensorInfo& tensor, std::uint64_t expected) {
  const auto place = [&] { return fmt::format("tensor {}", quote(tensor.name)); };
  if (tensor.begin != expected) {
    return fail(Errc::kCorrupt, "{}: data begins at byte {}, expected {} ({})", place(), tensor.begin, expected,
                tensor.begin < expected ? "overlaps the previous tensor" : "leaves a gap");
  }
  if (tensor.end < tensor.begin) {
    return fail(Errc::kCorrupt, "{}: data ends at byte {}, before it begins at byte {}", place(), tensor.end, tensor.begin);
  }
  const auto elements = checked_elements(tensor.shape);
  const auto bit_count = elements ? checked_mul(*elements, bits(tensor.dtype)) : std::nullopt;
  if (!bit_count) {
    return fail(Errc::kCorrupt, "{}: size of shape {} of {} overflows 64 bits", place(), to_string(tensor.shape),
                name(tensor.dtype));
  }
  if (*bit_count % 8 != 0) {
    return fail(Errc::kCorrupt, "{}: {} values of {} take {} bits, which is not a whole number of bytes", place(), *elements,
                name(tensor.dtype), *bit_count);
  }
  if (tensor.bytes() != *bit_count / 8) {
    return fail(Errc::kCorrupt, "{}: shape {} of {} needs {} bytes, data_offsets [{}, {}] cover {}", place(),
                to_string(tensor.shape), name(tensor.dtype), *bit_count / 8, tensor.begin, tensor.end, tensor.bytes());
  }
  return {};
}

Result<void> check_layout(const Header& header, std::uint64_t file_size) {
  std::uint64_t running = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (auto checked = check_tensor(tensor, running); !checked) return checked;
    running = tensor.end;
  }
  const std::uint64_t available = file_size - header.data_start;
  if (running > available) {
    return fail(Errc::kCorrupt,
                "file is truncated: tensors need {} bytes of data, the file has {} ({} missing); download it again", running,
                available, running - available);
  }
  if (running < available) {
    return fail(Errc::kCorrupt, "tensors cover {} bytes of data, the file has {} ({} trailing)", running, available,
                available - running);
  }
  return {};
}

void sort_by_position(LargeVector<TensorInfo>& tensors) {
  const auto position = [](const TensorInfo& tensor) { return std::tuple(tensor.begin, tensor.end); };
  if (std::ranges::is_sorted(tensors, {}, position)) return;
  std::ranges::sort(tensors, {}, [&](const TensorInfo& tensor) { return std::tuple(position(tensor), tensor.name); });
}

Result<void> check_table(Header& header, std::uint64_t file_size, Strictness strictness) {
  if (strictness == Strictness::kReference) drop_overwritten(header.tensors);
  // In nearly all files the entries are in order and one pass checks everything. Only if that fails, sort and check again.
  auto checked = check_layout(header, file_size);
  if (!checked) sort_by_position(header.tensors);
  if (auto names = check_names(header); !names) return names;
  return checked ? checked : check_layout(header, file_size);
}

// Drops the end of the text, where a character may be incomplete.
std::string_view until_last_ascii(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) >= 0x80) text.remove_suffix(1);
  return text;
}

std::size_t first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (const std::size_t length = utf8_length(text.substr(at))) at += length;
  return at;
}

}  // namespace

Result<std::uint64_t> read_data_start(std::span<const std::byte> front, std::uint64_t file_size, const HeaderOptions& options) {
  if (file_size < kLengthBytes || front.size() < kLengthBytes) {
    return fail(Errc::kCorrupt, "file of {} bytes is too small for a SafeTensors header (at least {} bytes){}", file_size,
                kLengthBytes, guess_format(front, options.path));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, front.data(), sizeof(length));
  if (length > options.max_header_bytes) {
    const std::string guess = guess_format(front, options.path);
    if (!guess.empty()) return fail(Errc::kCorrupt, "not a SafeTensors file{}", guess);
    const bool may_be_header = length <= file_size - kLengthBytes;
    return fail(Errc::kCorrupt, "header of {} bytes exceeds the limit of {} bytes; {}", length, options.max_header_bytes,
                may_be_header ? "raise max_header_bytes if you trust the file" : "the file is damaged or not a SafeTensors file");
  }
  const auto data_start = checked_add(kLengthBytes, length);
  if (!data_start || *data_start > file_size) {
    return fail(Errc::kCorrupt,
                "header of {} bytes ends past the end of the file ({} bytes); the file is truncated or not a SafeTensors file",
                length, file_size);
  }
  return *data_start;
}

Result<Header> parse_header(std::span<const std::byte> front, std::uint64_t file_size, const HeaderOptions& options) {
  const auto data_start = read_data_start(front, file_size, options);
  if (!data_start) return std::unexpected(data_start.error());
  if (front.size() < *data_start) {
    return fail(Errc::kInvalidArgument, "got only {} bytes of a header that ends at byte {}", front.size(), *data_start);
  }
  const std::string_view text(reinterpret_cast<const char*>(front.data()) + kLengthBytes, *data_start - kLengthBytes);
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return fail(Errc::kCorrupt, "invalid UTF-8 in header at byte {} of {}", kLengthBytes + first_invalid_utf8(text), *data_start);
  }

  Header header{.data_start = *data_start};
  HeaderParser parser(options.strictness, header);
  parser.reserve(text, text.size());
  if (auto parsed = parser.parse(text); !parsed) return std::unexpected(parsed.error());
  if (auto checked = check_table(header, file_size, options.strictness); !checked) return std::unexpected(checked.error());
  return header;
}

Result<std::optional<Header>> read_header(const Source& source, std::uint64_t data_start, const HeaderOptions& options,
                                          std::size_t piece) {
  Header header{.data_start = data_start, .names = Bytes(allocate_bytes(data_start))};
  HeaderParser parser(options.strictness, header);
  Bytes window(allocate_bytes(piece));
  std::size_t kept = 0;  // bytes at the front of the window: an incomplete entry
  for (std::uint64_t at = kLengthBytes; at < data_start;) {
    const std::size_t count = std::min(piece - kept, data_start - at);
    if (!source.read_at(at, {window.get() + kept, count})) return std::nullopt;
    if (at == kLengthBytes) parser.reserve({reinterpret_cast<const char*>(window.get()), count}, data_start);
    at += count;
    kept += count;
    std::string_view text(reinterpret_cast<const char*>(window.get()), kept);
    if (at < data_start) text = until_last_ascii(text);
    if (!simdjson::validate_utf8(text.data(), text.size())) return std::nullopt;

    const std::size_t taken = parser.take_part(text);
    header.decoded.clear();  // names are copied
    kept -= taken;
    if (taken > 0) {
      std::memmove(window.get(), window.get() + taken, kept);
    } else if (at < data_start && parser.failed_at_end(text)) {
      piece *= 8;  // grow fast: a long entry is parsed again with every piece
      Bytes larger(allocate_bytes(piece));
      std::memcpy(larger.get(), window.get(), kept);
      window = std::move(larger);
    } else {
      return std::nullopt;
    }
  }
  if (!parser.ended() || kept > 0) return std::nullopt;
  if (auto checked = check_table(header, source.size(), options.strictness); !checked) return std::unexpected(checked.error());
  return header;
}

}  // namespace ballast::safetensors
