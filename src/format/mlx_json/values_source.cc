#include "format/mlx_json/values_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/mlx_json/dtypes.h"
#include "format/mlx_json/values.h"

namespace ballast::mlx_json {
namespace {

// Decodes consecutive values of one tensor.
class Decoder {
 public:
  // The window starts at the text of `element`.
  Decoder(TextWindow& window, DType dtype, std::uint64_t element) : window_(window), dtype_(dtype), element_(element) {}

  // Skips to `element`. It is enough to count commas, because no value contains one.
  Result<void> skip_to(std::uint64_t element) {
    while (element_ != element) {
      if (window_.at() == window_.end() && !window_.slide()) return fail_early();
      const auto* const comma =
          static_cast<const char*>(std::memchr(window_.at(), ',', static_cast<std::size_t>(window_.end() - window_.at())));
      if (comma != nullptr) ++element_;
      window_.move_to(comma == nullptr ? window_.end() : comma + 1);
    }
    return {};
  }

  Result<void> decode(std::size_t count, std::byte* out) {
    const std::size_t size = bits(dtype_) / 8;
    const std::uint64_t stop = element_ + count;
    while (element_ != stop) {
      const char* at = window_.at();
      const std::size_t run = parse_run(dtype_, at, window_.end(), static_cast<std::size_t>(stop - element_), out);
      window_.move_to(at);
      element_ += run;
      out += run * size;
      if (element_ == stop) break;
      TRY(decode_one(out));
      ++element_;
      out += size;
    }
    return {};
  }

 private:
  // Decodes one value with white space around it and the comma after it. It may be at the end of the window.
  Result<void> decode_one(std::byte* out) {
    if (!skip_space()) return fail_early();
    window_.hold(TextWindow::kMostKept + 1);
    const char* const begin = window_.at();
    const auto ends = [](char c) { return c == ',' || c == ']' || is_space(c); };
    const char* const end = std::find_if(begin, window_.end(), ends);
    const std::string_view entry(begin, end);
    if (!parse_value(dtype_, entry, out)) {
      return fail(Errc::kCorrupt, "element {}: {} at byte {} does not fit {}", element_, quote(entry), window_.position(begin),
                  find_spelling(dtype_)->name);
    }
    window_.move_to(end);
    if (skip_space() && *window_.at() == ',') window_.move_to(window_.at() + 1);
    return {};
  }

  // False at the end of the text.
  bool skip_space() {
    for (;;) {
      window_.move_to(mlx_json::skip_space(window_.at()));
      if (window_.at() != window_.end()) return true;
      if (!window_.slide()) return false;
    }
  }

  Result<void> fail_early() const {
    if (window_.error()) return std::unexpected(*window_.error());
    return fail(Errc::kCorrupt, "element {}: the text ends at byte {}; the file changed after it was opened", element_,
                window_.position(window_.at()));
  }

  TextWindow& window_;
  DType dtype_;
  std::uint64_t element_;
};

class ValuesSource final : public Source {
 public:
  ValuesSource(std::unique_ptr<Source> text, Document document, std::size_t piece)
      : text_(std::move(text)), data_(std::move(document.data)), checkpoints_(std::move(document.checkpoints)), piece_(piece) {}

  std::uint64_t size() const override { return data_.empty() ? 0 : data_.back().end; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) {
      return fail(Errc::kIo, "cannot read {} bytes at offset {}: the size is {} bytes", out.size(), offset, size());
    }
    auto data = std::ranges::upper_bound(data_, offset, {}, &DataText::end);
    for (; !out.empty(); ++data) {
      const auto part = out.first(std::min<std::uint64_t>(out.size(), data->end - offset));
      TRY(read_tensor(*data, offset - data->begin, part));
      out = out.subspan(part.size());
      offset += part.size();
    }
    return {};
  }

  Result<std::span<const std::byte>> map() const override {
    return fail(Errc::kUnsupported, "view() is not available for MLX JSON, which stores text; use read()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  // `offset` is relative to the tensor. Values of which only some bytes are requested are decoded into a temporary.
  Result<void> read_tensor(const DataText& data, std::uint64_t offset, std::span<std::byte> out) const {
    const std::uint64_t size = bits(data.dtype) / 8;
    const auto read_part = [&](std::size_t count) -> Result<void> {
      std::array<std::byte, 8> value{};
      TRY(read_elements(data, offset / size, 1, value.data()));
      std::memcpy(out.data(), value.data() + offset % size, count);
      offset += count;
      out = out.subspan(count);
      return {};
    };
    if (offset % size != 0) {
      TRY(read_part(std::min<std::uint64_t>(out.size(), size - offset % size)));
    }
    if (const std::uint64_t whole = out.size() / size; whole != 0) {
      TRY(read_elements(data, offset / size, whole, out.data()));
      offset += whole * size;
      out = out.subspan(whole * size);
    }
    return out.empty() ? Result<void>() : read_part(out.size());
  }

  Result<void> read_elements(const DataText& data, std::uint64_t first, std::uint64_t count, std::byte* out) const {
    const std::uint64_t elements = (data.end - data.begin) / (bits(data.dtype) / 8);
    const std::uint64_t stop = first + count;
    const auto checkpoint = [&](std::uint64_t number) { return checkpoints_[data.checkpoint + number]; };
    const std::uint64_t last = (stop + kStride - 1) / kStride;  // at or after the last value
    const std::uint64_t text_end = last * kStride < elements ? checkpoint(last) : data.text_end;
    TextWindow window(*text_, checkpoint(first / kStride), text_end, piece_);
    Decoder decoder(window, data.dtype, first / kStride * kStride);
    TRY(decoder.skip_to(first));
    return decoder.decode(count, out);
  }

  std::unique_ptr<Source> text_;
  LargeVector<DataText> data_;
  LargeVector<std::uint64_t> checkpoints_;
  std::size_t piece_;
};

}  // namespace

std::unique_ptr<Source> open_values(std::unique_ptr<Source> text, Document document, std::size_t piece) {
  return std::make_unique<ValuesSource>(std::move(text), std::move(document), piece);
}

}  // namespace ballast::mlx_json
