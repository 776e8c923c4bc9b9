#include "format/gguf/header.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMostAlignment = std::uint64_t{1} << 20;
constexpr std::uint32_t kMostDims = 8;
constexpr std::uint64_t kFewestKeyBytes = 8 + 1 + 4 + 1;
constexpr std::uint64_t kFewestTensorBytes = 8 + 1 + 4 + 4 + 8;

// The bytes of one element; 0 for strings.
std::uint64_t size_of(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64: return 8;
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  return 0;
}

// Reads numbers and strings one after the other. `front` may end before the file does: needs_more() then says so, and the error
// means nothing.
class Cursor {
 public:
  Cursor(std::span<const std::byte> front, std::uint64_t file_size) : front_(front), file_size_(file_size) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t left() const { return file_size_ - position_; }
  bool needs_more() const { return needs_more_; }

  Result<std::span<const std::byte>> bytes(std::uint64_t count) {
    if (count > left()) {
      return fail(Errc::kCorrupt, "{} bytes at byte {}, but the file has {}; it is damaged or truncated, download it again",
                  count, position_, file_size_);
    }
    if (count > front_.size() - position_) {
      needs_more_ = true;
      return fail(Errc::kCorrupt, "the table does not end in the first {} bytes", front_.size());
    }
    const auto taken = front_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <std::unsigned_integral T>
  Result<T> number() {
    const auto taken = TRY(bytes(sizeof(T)));
    T value{};
    std::memcpy(&value, taken.data(), sizeof(T));
    return value;
  }

  Result<std::string_view> string() {
    const auto length = TRY(number<std::uint64_t>());
    const auto text = TRY(bytes(length));
    return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
  }

  // Skips `count` strings and returns their bytes, with the lengths.
  Result<std::span<const std::byte>> strings(std::uint64_t count) {
    const std::uint64_t begin = position_;
    for (std::uint64_t i = 0; i < count; ++i) TRY(string());
    return front_.subspan(begin, position_ - begin);
  }

 private:
  std::span<const std::byte> front_;
  std::uint64_t file_size_;
  std::uint64_t position_ = 0;
  bool needs_more_ = false;
};

class Parser {
 public:
  Parser(std::span<const std::byte> front, std::uint64_t file_size) : cursor_(front, file_size), file_size_(file_size) {}

  Result<std::optional<Table>> parse() {
    auto parsed = parse_all();
    if (!parsed && cursor_.needs_more()) return std::nullopt;
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    return std::move(table_);
  }

 private:
  Result<void> parse_all() {
    TRY(version());
    const auto tensors = TRY(cursor_.number<std::uint64_t>());
    const auto keys = TRY(cursor_.number<std::uint64_t>());
    TRY(check_count("tensors", tensors, kFewestTensorBytes));
    TRY(check_count("metadata keys", keys, kFewestKeyBytes));
    for (std::uint64_t i = 0; i < keys; ++i) {
      if (auto read = entry(); !read) return fail_at(fmt::format("metadata key {} of {}", i + 1, keys), std::move(read.error()));
    }
    TRY(check_keys());
    TRY(alignment());
    for (std::uint64_t i = 0; i < tensors; ++i) {
      if (auto read = tensor(); !read) return fail_at(fmt::format("tensor {} of {}", i + 1, tensors), std::move(read.error()));
    }
    set_shapes();
    TRY(check_names());
    return check_data();
  }

  Result<void> version() {
    const auto magic = TRY(cursor_.bytes(kMagic.size()));
    if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
      return fail(Errc::kCorrupt, "not a GGUF file: it does not begin with '{}'", kMagic);
    }
    table_.version = TRY(cursor_.number<std::uint32_t>());
    if ((table_.version & 0xFFFFU) == 0)
      return fail(Errc::kUnsupported, "big-endian GGUF is not supported; convert it with gguf-py");
    if (table_.version != 2 && table_.version != 3) {
      return fail(Errc::kUnsupported, "GGUF version {} is not supported; Ballast reads versions 2 and 3", table_.version);
    }
    return {};
  }

  // Nothing is allocated from a count that the file is too short for.
  Result<void> check_count(std::string_view what, std::uint64_t count, std::uint64_t fewest_bytes) const {
    if (count <= cursor_.left() / fewest_bytes) return {};
    return fail(Errc::kCorrupt, "{} {} need at least {} bytes each, but only {} bytes follow", count, what, fewest_bytes,
                cursor_.left());
  }

  Result<ValueType> value_type() {
    const auto number = TRY(cursor_.number<std::uint32_t>());
    if (number > static_cast<std::uint32_t>(ValueType::kF64)) return fail(Errc::kCorrupt, "unknown value type {}", number);
    return static_cast<ValueType>(number);
  }

  Result<void> entry() {
    const auto key = TRY(cursor_.string());
    if (key.empty()) return fail(Errc::kCorrupt, "the key is empty");
    auto value = this->value();
    if (!value) return fail_at(quote(key), std::move(value.error()));
    table_.metadata.emplace_back(key, *value);
    return {};
  }

  Result<Value> value() {
    Value value{.type = TRY(value_type())};
    if (value.type == ValueType::kArray) {
      value.is_array = true;
      value.type = TRY(value_type());
      if (value.type == ValueType::kArray) return fail(Errc::kUnsupported, "arrays of arrays are not supported");
      value.count = TRY(cursor_.number<std::uint64_t>());
    }
    const std::uint64_t fewest = value.type == ValueType::kString ? sizeof(std::uint64_t) : size_of(value.type);
    TRY(check_count("elements", value.count, fewest));
    value.bytes = TRY(value.type == ValueType::kString ? cursor_.strings(value.count) : cursor_.bytes(value.count * fewest));
    if (value.type == ValueType::kBool) {
      const auto odd = std::ranges::find_if(value.bytes, [](std::byte byte) { return byte > std::byte{1}; });
      if (odd != value.bytes.end()) return fail(Errc::kCorrupt, "a bool is {}, expected 0 or 1", static_cast<unsigned>(*odd));
    }
    return value;
  }

  Result<void> check_keys() const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : table_.metadata) keys.push_back(key);
    return check_distinct(std::move(keys), "metadata key");
  }

  Result<void> check_names() const {
    std::vector<std::string_view> names;
    for (const Tensor& tensor : table_.tensors) names.push_back(tensor.name);
    return check_distinct(std::move(names), "tensor");
  }

  static Result<void> check_distinct(std::vector<std::string_view> names, std::string_view what) {
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice == names.end()) return {};
    return fail(Errc::kCorrupt, "{} {} is there twice", what, quote(*twice));
  }

  Result<void> alignment() {
    const Value* const value = table_.find(kAlignmentKey);
    table_.alignment = value == nullptr ? kDefaultAlignment : value->as_unsigned().value_or(0);
    if (value != nullptr && (value->is_array || value->type != ValueType::kU32)) {
      return fail(Errc::kCorrupt, "'{}' is not a u32", kAlignmentKey);
    }
    if (std::has_single_bit(table_.alignment) && table_.alignment <= kMostAlignment) return {};
    return fail(Errc::kCorrupt, "'{}' is {}, expected a power of two of at most {}", kAlignmentKey, table_.alignment,
                kMostAlignment);
  }

  Result<void> tensor() {
    Tensor tensor{.name = TRY(cursor_.string())};
    if (tensor.name.empty()) return fail(Errc::kCorrupt, "the name is empty");
    if (auto read = rest_of(tensor); !read) return fail_at(quote(tensor.name), std::move(read.error()));
    table_.tensors.push_back(tensor);
    return {};
  }

  Result<void> rest_of(Tensor& tensor) {
    const auto count = TRY(cursor_.number<std::uint32_t>());
    if (count > kMostDims) return fail(Errc::kCorrupt, "{} dimensions, at most {} are supported", count, kMostDims);
    const std::size_t first = table_.dims.size();
    for (std::uint32_t i = 0; i < count; ++i) table_.dims.push_back(TRY(cursor_.number<std::uint64_t>()));
    const std::span dims = std::span(table_.dims).subspan(first);
    std::ranges::reverse(dims);
    counts_.push_back(count);
    const auto number = TRY(cursor_.number<std::uint32_t>());
    tensor.type = find_block_type(number);
    if (tensor.type == nullptr) return fail(Errc::kUnsupported, "unknown ggml type {}", number);
    const std::uint64_t columns = dims.empty() ? 1 : dims.back();
    if (columns % tensor.type->elements != 0) {
      return fail(Errc::kCorrupt, "rows of {} values, but {} has blocks of {}", columns, tensor.type->name,
                  tensor.type->elements);
    }
    const auto elements = checked_elements(dims);
    const auto bytes = elements ? checked_mul(*elements / tensor.type->elements, tensor.type->bytes) : std::nullopt;
    if (!bytes) return fail(Errc::kCorrupt, "shape {} has too many values", to_string(dims));
    tensor.begin = TRY(cursor_.number<std::uint64_t>());
    const auto end = checked_add(tensor.begin, *bytes);
    if (tensor.begin != expected_) return fail(Errc::kCorrupt, "offset is {}, expected {}", tensor.begin, expected_);
    if (!end || *end > file_size_) {
      return fail(Errc::kCorrupt, "file is truncated: {} bytes from offset {} on, but the file has {}; download it again", *bytes,
                  tensor.begin, file_size_);
    }
    tensor.end = *end;
    expected_ = padded(*end);
    return {};
  }

  // Cannot overflow: `end` is at most the size of a file.
  std::uint64_t padded(std::uint64_t end) const { return ceil_div(end, table_.alignment) * table_.alignment; }

  // After `dims` has its final place.
  void set_shapes() {
    const std::uint64_t* at = table_.dims.data();
    for (std::size_t i = 0; i < table_.tensors.size(); ++i) {
      table_.tensors[i].shape = Shape(at, counts_[i]);
      at += counts_[i];
    }
  }

  Result<void> check_data() {
    table_.data_start = padded(cursor_.position());
    const std::uint64_t data = table_.tensors.empty() ? 0 : table_.tensors.back().end;
    const std::uint64_t there = file_size_ - std::min(table_.data_start, file_size_);
    if (data <= there) return {};
    return fail(Errc::kCorrupt,
                "file is truncated: tensors need {} bytes of data, the file has {} ({} missing); download it again", data, there,
                data - there);
  }

  Cursor cursor_;
  std::uint64_t file_size_;
  Table table_;
  std::vector<std::uint32_t> counts_;  // of dimensions, for each tensor
  std::uint64_t expected_ = 0;         // offset of the next tensor
};

}  // namespace

const Value* Table::find(std::string_view key) const {
  const auto found = std::ranges::find(metadata, key, &std::pair<std::string_view, Value>::first);
  return found == metadata.end() ? nullptr : &found->second;
}

Result<std::optional<Table>> parse_table(std::span<const std::byte> front, std::uint64_t file_size) {
  return Parser(front, file_size).parse();
}

Result<Header> read_header(const Source& source, std::uint64_t most_bytes) {
  constexpr std::uint64_t kFirst = std::uint64_t{128} << 10;
  const std::uint64_t most = std::min(source.size(), most_bytes);
  Header header;
  std::uint64_t there = 0;
  for (std::uint64_t size = std::min(kFirst, most);; size = std::min(2 * size, most)) {
    Bytes longer(allocate_bytes(size));
    if (there > 0) std::memcpy(longer.get(), header.bytes.get(), there);
    TRY(source.read_at(there, {longer.get() + there, size - there}));
    header.bytes = std::move(longer);
    there = size;
    auto table = TRY(parse_table({header.bytes.get(), there}, source.size()));
    if (table) {
      header.table = std::move(*table);
      return header;
    }
    if (size == most) return fail(Errc::kUnsupported, "the table is larger than the limit of {} bytes", most_bytes);
  }
}

}  // namespace ballast::gguf
