#include "scheme/compressed_tensors/zero_points.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::uint64_t kWordBits = 32;

class PackedZeroPoints final : public Parameters {
 public:
  explicit PackedZeroPoints(const PackedZeros& zeros) : zeros_(zeros) {}

  std::uint64_t groups() const override { return zeros_.groups; }

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    while (count > 0) {
      const std::uint64_t row = first % zeros_.matrix_rows;
      const std::uint64_t part = std::min(count, zeros_.matrix_rows - row);
      TRY(read_matrix(model, first / zeros_.matrix_rows, row, out.first(part * zeros_.groups)));
      out = out.subspan(part * zeros_.groups);
      first += part;
      count -= part;
    }
    return {};
  }

  // Every pattern of bits is a zero point.
  Result<std::vector<std::string>> check_values(const Model&) const override { return std::vector<std::string>{}; }

 private:
  // The first bit of a row in its column of words.
  std::uint64_t bit_of(std::uint64_t row) const {
    if (zeros_.per_word == 0) return row * zeros_.bits;
    return row / zeros_.per_word * kWordBits + row % zeros_.per_word * zeros_.bits;
  }

  Result<void> read_matrix(const Model& model, std::uint64_t matrix, std::uint64_t first, std::span<float> out) const {
    const std::uint64_t groups = zeros_.groups;
    const std::uint64_t count = out.size() / groups;
    const std::uint64_t begin = bit_of(first) / kWordBits;
    const std::uint64_t end = (bit_of(first + count - 1) + zeros_.bits - 1) / kWordBits + 1;
    std::vector<std::uint32_t> words((end - begin) * groups);
    TRY(model.read_into(zeros_.tensor->name, (matrix * zeros_.words + begin) * groups * sizeof(std::uint32_t),
                        std::as_writable_bytes(std::span(words))));
    const auto half = static_cast<int>(1U << (zeros_.bits - 1));
    const std::uint32_t mask = (1U << zeros_.bits) - 1;
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::uint64_t bit = bit_of(first + row) - begin * kWordBits;
      const std::uint64_t shift = bit % kWordBits;
      const std::uint32_t* const low = words.data() + bit / kWordBits * groups;
      for (std::uint64_t group = 0; group < groups; ++group) {
        std::uint64_t both = low[group];
        if (shift + zeros_.bits > kWordBits) both |= std::uint64_t{low[groups + group]} << kWordBits;
        out[row * groups + group] = static_cast<float>(static_cast<int>(both >> shift & mask) - half);
      }
    }
    return {};
  }

  PackedZeros zeros_;
};

class ByteZeroPoints final : public Parameters {
 public:
  ByteZeroPoints(const ParameterTable& table, unsigned bits)
      : tensor_(table.tensor), bits_(bits), table_(parameter_table(table)) {}

  std::uint64_t groups() const override { return table_->groups(); }
  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    return table_->read(model, first, count, out);
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    const auto limit = static_cast<float>(1U << (bits_ - 1));
    const std::vector<float> values = TRY(read_floats(model, *tensor_, tensor_->dtype));
    const auto is_outside = [&](float value) { return value < -limit || value >= limit; };
    const auto first = std::ranges::find_if(values, is_outside);
    if (first == values.end()) return std::vector<std::string>{};
    return std::vector{fmt::format("tensor {}: {} of {} zero points do not fit {} bits, the first at index {} is {}",
                                   quote(tensor_->name), std::count_if(first, values.end(), is_outside), values.size(), bits_,
                                   first - values.begin(), *first)};
  }

 private:
  const TensorInfo* tensor_;
  unsigned bits_;
  std::unique_ptr<const Parameters> table_;
};

}  // namespace

std::unique_ptr<const Parameters> packed_zero_points(const PackedZeros& zeros) {
  return std::make_unique<PackedZeroPoints>(zeros);
}

std::unique_ptr<const Parameters> byte_zero_points(const ParameterTable& table, unsigned bits) {
  return std::make_unique<ByteZeroPoints>(table, bits);
}

}  // namespace ballast
