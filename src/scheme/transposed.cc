#include "scheme/transposed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ballast/convert.h>

#include "base/try.h"
#include "model/state.h"

namespace ballast {
namespace {

// Reads columns [first, first + count) of a matrix, row after row.
Result<void> read_columns(const Model& model, const TensorInfo& tensor, std::uint64_t first, std::uint64_t count,
                          std::span<std::byte> out) {
  const std::uint64_t size = bits(tensor.dtype) / 8;
  const std::uint64_t columns = tensor.shape[1];
  const std::uint64_t part = count * size;
  if (count == columns) return ModelAccess::read_parts(model, tensor, {{.offset = 0, .out = out}});
  std::vector<Range> parts;
  parts.reserve(tensor.shape[0]);
  for (std::uint64_t row = 0; row < tensor.shape[0]; ++row) {
    parts.push_back({.offset = (row * columns + first) * size, .out = out.subspan(row * part, part)});
  }
  return ModelAccess::read_parts(model, tensor, std::move(parts));
}

// Columns become rows, in squares that fit a cache.
template <class T>
void transpose(const T* from, std::uint64_t rows, std::uint64_t columns, T* to) {
  constexpr std::uint64_t kSide = 16;
  for (std::uint64_t first = 0; first < columns; first += kSide) {
    const std::uint64_t last = std::min(first + kSide, columns);
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (std::uint64_t column = first; column < last; ++column) to[column * rows + row] = from[row * columns + column];
    }
  }
}

class TransposedScales final : public Parameters {
 public:
  explicit TransposedScales(const TensorInfo& scales) : scales_(&scales) {}

  std::uint64_t groups() const override { return scales_->shape[0]; }

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    std::vector<std::byte> bytes(out.size() * bits(scales_->dtype) / 8);
    TRY(read_columns(model, *scales_, first, count, bytes));
    std::vector<float> values(out.size());
    TRY(convert_values(scales_->dtype, bytes, DType::kF32, std::as_writable_bytes(std::span(values))));
    transpose(values.data(), groups(), count, out.data());
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    return check_scales(model, *scales_, scales_->dtype, ZeroScale::kDefect);
  }

 private:
  const TensorInfo* scales_;
};

}  // namespace

Result<Words> read_words(const Model& model, const TensorInfo& tensor, std::uint64_t first, std::uint64_t count) {
  Words words(tensor.shape[0] * count);
  TRY(read_columns(model, tensor, first, count, std::as_writable_bytes(std::span(words))));
  return words;
}

Words transposed(const Words& words, std::uint64_t columns) {
  Words result(words.size());
  transpose(words.data(), words.size() / columns, columns, result.data());
  return result;
}

std::unique_ptr<const Parameters> transposed_scales(const TensorInfo& scales) {
  return std::make_unique<TransposedScales>(scales);
}

}  // namespace ballast
