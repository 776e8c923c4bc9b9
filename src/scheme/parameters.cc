#include "scheme/parameters.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <ballast/convert.h>

#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

// Elements [first, first + count) of a tensor as F32.
Result<void> read_range(const Model& model, const TensorInfo& tensor, DType dtype, std::uint64_t first, std::span<float> out) {
  const std::uint64_t size = bits(dtype) / 8;
  std::vector<std::byte> bytes(out.size() * size);
  TRY(model.read_into(tensor.name, first * size, bytes));
  TRY(convert_values(dtype, bytes, DType::kF32, std::as_writable_bytes(out)));
  return {};
}

class TableParameters final : public Parameters {
 public:
  explicit TableParameters(const ParameterTable& table) : table_(table) {}

  std::uint64_t groups() const override { return table_.groups; }

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const std::uint64_t begin = block_of(first);
    const std::uint64_t blocks = block_of(first + count - 1) - begin + 1;
    std::vector<float> values(blocks * table_.groups);
    TRY(read_range(model, *table_.tensor, table_.dtype, begin * table_.groups, values));
    if (table_.factor != nullptr) {
      const std::vector<float> factors = TRY(read_floats(model, *table_.factor, table_.factor->dtype));
      const std::uint64_t per_matrix = blocks_of_matrix();
      for (std::uint64_t block = 0; block < blocks; ++block) {
        const float factor = factors[factors.size() == 1 ? 0 : (begin + block) / per_matrix];
        for (float& value : std::span(values).subspan(block * table_.groups, table_.groups)) {
          value = table_.divides ? value / factor : value * factor;
        }
      }
    }
    for (std::uint64_t row = 0; row < count; ++row) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>((block_of(first + row) - begin) * table_.groups), table_.groups,
                  out.begin() + static_cast<std::ptrdiff_t>(row * table_.groups));
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    auto found = TRY(check_scales(model, *table_.tensor, table_.dtype, table_.zero));
    if (table_.factor == nullptr) return found;
    std::ranges::move(TRY(check_scales(model, *table_.factor, table_.factor->dtype, ZeroScale::kDefect)),
                      std::back_inserter(found));
    return found;
  }

 private:
  std::uint64_t blocks_of_matrix() const {
    if (table_.matrix_rows == 0) return ~std::uint64_t{0};
    return (table_.matrix_rows + table_.block_rows - 1) / table_.block_rows;
  }
  std::uint64_t block_of(std::uint64_t row) const {
    if (table_.matrix_rows == 0) return row / table_.block_rows;
    return row / table_.matrix_rows * blocks_of_matrix() + row % table_.matrix_rows / table_.block_rows;
  }

  ParameterTable table_;
};

}  // namespace

std::unique_ptr<const Parameters> parameter_table(const ParameterTable& table) {
  return std::make_unique<TableParameters>(table);
}

Result<std::vector<float>> read_floats(const Model& model, const TensorInfo& tensor, DType dtype) {
  std::vector<float> values(tensor.bytes() * 8 / bits(dtype));
  TRY(read_range(model, tensor, dtype, 0, values));
  return values;
}

Result<std::vector<std::string>> check_scales(const Model& model, const TensorInfo& tensor, DType dtype, ZeroScale zero) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;
  const std::uint64_t all = tensor.bytes() * 8 / bits(dtype);
  struct Found {
    std::uint64_t count = 0;
    std::uint64_t first = 0;
    void add(std::uint64_t index) {
      if (count++ == 0) first = index;
    }
  } bad, zeros;
  std::vector<float> values;
  for (std::uint64_t at = 0; at < all; at += kPiece) {
    values.resize(std::min(kPiece, all - at));
    TRY(read_range(model, tensor, dtype, at, values));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) bad.add(at + i);
      if (values[i] == 0) zeros.add(at + i);
    }
  }
  std::vector<std::string> messages;
  const auto describe = [&](const Found& found, std::string_view what) {
    messages.push_back(fmt::format("tensor {}: {} of {} scales are {}, the first at index {}", quote(tensor.name), found.count,
                                   all, what, found.first));
  };
  if (bad.count > 0) describe(bad, "NaN or infinite");
  if (zeros.count > 0 && zero == ZeroScale::kDefect) describe(zeros, "zero");
  return messages;
}

}  // namespace ballast
