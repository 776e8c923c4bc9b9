#include "format/mlx_json/document.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "format/mlx_json/dtypes.h"
#include "format/mlx_json/json_stream.h"
#include "format/safetensors/magic.h"

namespace ballast::mlx_json {
namespace {

// Reads one document from start to end.
class DocumentReader {
 public:
  DocumentReader(const Source& text, const DocumentOptions& options)
      : text_(text),
        window_(text, 0, text.size(), options.piece),
        json_(window_, options.max_table_bytes),
        max_table_bytes_(options.max_table_bytes) {}

  Result<Document> read() {
    const bool is_json = json_.peek() == '{';
    const bool parsed = json_.object([&](const std::string& key) { return member(key); }) && json_.at_end();
    if (window_.error()) return std::unexpected(*window_.error());
    if (!parsed) return fail(code_, "{}{}{}", place(), json_.failure(), is_json ? hint_ : guess());
    if ((seen_ & kWeights) == 0) return fail(Errc::kCorrupt, "'weights' is missing or not an object");
    bind_shapes();
    document_.table.index = NameIndex(tensors().size());
    if (const auto duplicate = document_.table.index.insert_all(tensors())) {
      return fail(Errc::kCorrupt, "duplicate tensor {}: once at byte {}, once at byte {}",
                  quote(tensors()[duplicate->first].name), named_at_[duplicate->first], named_at_[duplicate->second]);
    }
    return std::move(document_);
  }

 private:
  enum Field : unsigned { kWeights = 1, kMetadata = 2, kShape = 1, kDtype = 2, kData = 4 };

  LargeVector<TensorInfo>& tensors() { return document_.table.tensors; }
  LargeVector<std::uint64_t>& dims() { return document_.table.dims; }

  // The start of an error message: the tensor and the element.
  std::string place() const {
    if (!name_) return {};
    return fmt::format("tensor {}: {}", quote(*name_), element_ ? fmt::format("element {}: ", *element_) : "");
  }

  // The likely format of a file that is not JSON.
  std::string guess() const {
    std::array<std::byte, 256> front{};
    const std::span<std::byte> bytes(front.data(), std::min<std::uint64_t>(front.size(), text_.size()));
    return text_.read_at(0, bytes) ? safetensors::guess_format(bytes) : "";
  }

  bool once(unsigned& seen, Field field, std::string_view key) {
    if ((seen & field) != 0) return json_.fail(fmt::format("duplicate key '{}'", key));
    seen |= field;
    return true;
  }

  // Counts the bytes in the table, so that a hostile text cannot exhaust memory with names and dimensions.
  bool keep(std::uint64_t bytes) {
    kept_ += bytes;
    return kept_ <= max_table_bytes_ ||
           json_.fail(fmt::format("names, shapes and metadata exceed the limit of {} bytes", max_table_bytes_));
  }

  bool member(const std::string& key) {
    constexpr int kDepth = 1;
    if (key == "weights") {
      return once(seen_, kWeights, key) && json_.object([&](const std::string& name) { return tensor(name); });
    }
    if (key == "metadata" && !once(seen_, kMetadata, key)) return false;
    return key == "metadata" && json_.peek() == '{' ? metadata() : json_.skip_value(kDepth);
  }

  bool metadata() {
    document_.table.has_metadata = true;
    constexpr int kDepth = 2;
    return json_.object([&](const std::string& key) {
      if (json_.peek() != '"') return json_.skip_value(kDepth);
      std::string value;
      if (!json_.string(value) || !keep(key.size() + value.size())) return false;
      const bool inserted = document_.table.metadata.try_emplace(key, std::move(value)).second;
      return inserted || json_.fail(fmt::format("duplicate metadata key {}", quote(key)));
    });
  }

  bool tensor(const std::string& name) {
    constexpr int kDepth = 3;
    json_.peek();
    if (!keep(name.size() + sizeof(std::string) + sizeof(TensorInfo) + sizeof(DataText))) return false;
    name_ = document_.table.decoded.emplace_back(name);
    named_at_.push_back(json_.position());
    info_ = {.name = *name_};
    text_of_ = {.checkpoint = document_.checkpoints.size()};
    const std::size_t first_dim = dims().size();
    count_ = 0;
    fields_ = 0;
    code_given_ = false;
    const bool parsed = json_.object([&](const std::string& key) {
      if (key == "shape") return once(fields_, kShape, key) && shape();
      if (key == "dtype") return once(fields_, kDtype, key) && dtype();
      if (key == "data") return once(fields_, kData, key) && data();
      return json_.skip_value(kDepth);
    });
    if (!parsed || !check_fields() || !check_count({dims().data() + first_dim, dims().size() - first_dim})) return false;
    ranks_.push_back(static_cast<std::uint32_t>(dims().size() - first_dim));
    name_.reset();
    return true;
  }

  bool shape() {
    return json_.array([&] {
      std::uint64_t dim = 0;
      if (!json_.whole_number(dim) || !keep(sizeof(dim))) return false;
      dims().push_back(dim);
      return true;
    });
  }

  bool dtype() {
    const std::uint64_t position = (json_.peek(), json_.position());
    std::uint64_t code = 0;
    std::string text;
    code_given_ = json_.peek() != '"';
    if (!(code_given_ ? json_.whole_number(code) : json_.string(text))) return false;
    const auto* const found = std::ranges::find_if(
        kSpellings, [&](const Spelling& spelling) { return code_given_ ? spelling.code == code : spelling.name == text; });
    if (found != kSpellings.end()) {
      info_.dtype = found->dtype;
      return true;
    }
    code_ = Errc::kUnsupported;
    std::vector<std::string> known;
    for (const Spelling& spelling : kSpellings) {
      if (!code_given_) known.emplace_back(spelling.name);
      if (code_given_ && spelling.code) known.push_back(fmt::format("{} ({})", *spelling.code, spelling.name));
    }
    hint_ = fmt::format("; known {} are {}", code_given_ ? "codes" : "dtypes", fmt::join(known, ", "));
    return json_.fail_at(position, fmt::format("unknown dtype {}", code_given_ ? fmt::format("code {}", code) : quote(text)));
  }

  bool data() {
    json_.peek();
    data_at_ = json_.position();
    if (!json_.take('[')) return false;
    if (json_.peek() == ']') return end_data();
    for (;;) {
      element_ = count_;
      json_.peek();
      if (count_ % kStride == 0) {
        if (!keep(sizeof(std::uint64_t))) return false;
        document_.checkpoints.push_back(json_.position());
      }
      count_ += json_.skip_numbers(kStride - count_ % kStride);
      if (count_ != *element_ && count_ % kStride == 0) continue;
      element_ = count_;
      if (!json_.skip_entry()) return false;
      ++count_;
      if (json_.peek() != ',') return end_data();
      json_.take(',');
    }
  }

  bool end_data() {
    text_of_.text_end = json_.position();
    if (json_.peek() != ']') return json_.fail_expecting("',' or ']'");
    element_.reset();
    return json_.take(']');
  }

  bool check_fields() {
    if (fields_ == (kShape | kDtype | kData)) return true;
    if (fields_ == (kShape | kDtype) && code_given_) {
      code_ = Errc::kUnsupported;
      hint_ = "; open the model that this file describes";
      return json_.fail("metadata only: a dtype code without data");
    }
    return json_.fail(fmt::format("missing key '{}'", (fields_ & kDtype) == 0   ? "dtype"
                                                      : (fields_ & kShape) == 0 ? "shape"
                                                                                : "data"));
  }

  // Called when the tensor is complete. Assigns its range among the decoded bytes.
  bool check_count(Shape shape) {
    const auto elements = checked_elements(shape);
    const auto bytes = elements ? checked_mul(*elements, bits(info_.dtype) / 8) : std::nullopt;
    const auto end = bytes ? checked_add(size_, *bytes) : std::nullopt;
    if (elements && *elements != count_) {
      return json_.fail_at(data_at_,
                           fmt::format("shape {} needs {} values, there are {} in data", to_string(shape), *elements, count_));
    }
    if (!end) return json_.fail(fmt::format("size of shape {} of {} overflows 64 bits", to_string(shape), name(info_.dtype)));
    info_.begin = text_of_.begin = size_;
    info_.end = text_of_.end = size_ = *end;
    text_of_.dtype = info_.dtype;
    tensors().push_back(info_);
    document_.data.push_back(text_of_);
    return true;
  }

  // Called when `dims` no longer grows, so that shapes can point into it.
  void bind_shapes() {
    std::size_t at = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      tensors()[i].shape = {dims().data() + at, ranks_[i]};
      at += ranks_[i];
    }
  }

  const Source& text_;
  TextWindow window_;
  JsonStream json_;
  std::uint64_t max_table_bytes_;
  std::uint64_t kept_ = 0;
  Document document_;
  std::uint64_t size_ = 0;  // decoded bytes of the tensors so far
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> named_at_;
  Errc code_ = Errc::kCorrupt;  // of the failure
  std::string hint_;            // end of its message
  unsigned seen_ = 0;           // keys at the root

  // The current tensor:
  std::optional<std::string_view> name_;
  std::optional<std::uint64_t> element_;
  TensorInfo info_;
  DataText text_of_;
  unsigned fields_ = 0;
  bool code_given_ = false;
  std::uint64_t count_ = 0;
  std::uint64_t data_at_ = 0;
};

}  // namespace

Result<Document> read_document(const Source& text, const DocumentOptions& options) {
  return DocumentReader(text, options).read();
}

}  // namespace ballast::mlx_json
