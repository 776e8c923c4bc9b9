#include "scheme/mxfp4/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "base/bytes.h"
#include "base/try.h"
#include "model/state.h"
#include "scheme/codes.h"
#include "scheme/grouped_decoder.h"
#include "scheme/parameters.h"

namespace ballast {
namespace {

float from_e8m0(std::byte exponent) {
  constexpr unsigned kNan = 255;
  const auto value = std::to_integer<std::uint32_t>(exponent);
  if (value == kNan) return std::numeric_limits<float>::quiet_NaN();
  if (value == 0) return 0x1p-127F;
  return std::bit_cast<float>(value << 23U);
}

// The same bytes of every row of a part of one expert.
struct Strips {
  const TensorInfo* tensor;
  std::uint64_t row_bytes;
  std::uint64_t begin;  // in a row
  std::uint64_t size;
};

Result<Bytes> read_strips(const Model& model, const Strips& strips, std::uint64_t first_row, std::uint64_t rows) {
  Bytes bytes(allocate_bytes(rows * strips.size));
  std::vector<Range> parts;
  parts.reserve(rows);
  for (std::uint64_t row = 0; row < rows; ++row) {
    parts.push_back(
        {.offset = (first_row + row) * strips.row_bytes + strips.begin, .out = {bytes.get() + row * strips.size, strips.size}});
  }
  TRY(ModelAccess::read_parts(model, *strips.tensor, std::move(parts)));
  return bytes;
}

// A row of the result is a column of the stored matrix: a nibble of every stored row.
class TransposedDecoder final : public RowDecoder {
 public:
  explicit TransposedDecoder(const Mxfp4Experts& experts) : experts_(experts) {}

  bool is_transposed() const override { return true; }

  Result<void> decode(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    while (count > 0) {
      const std::uint64_t column = first % experts_.columns();
      const std::uint64_t part = std::min(count, experts_.columns() - column);
      TRY(decode_columns(model, first / experts_.columns(), column, out.first(part * experts_.rows)));
      out = out.subspan(part * experts_.rows);
      first += part;
      count -= part;
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    return check_scales(model, *experts_.scales, DType::kF8E8M0, ZeroScale::kAllowed);
  }

 private:
  static constexpr std::uint64_t kTileRows = 16;  // stored rows at a time: their values fill one cache line of a result row

  // Stored columns from `column` on, as many as `out` has room for.
  Result<void> decode_columns(const Model& model, std::uint64_t expert, std::uint64_t column, std::span<float> out) const {
    const std::uint64_t rows = experts_.rows;
    const std::uint64_t last = column + out.size() / rows - 1;
    const std::uint64_t byte = column / 2;
    const std::uint64_t group = column / Mxfp4Experts::kGroupSize;
    const Strips code_strips{.tensor = experts_.blocks,
                             .row_bytes = experts_.groups * Mxfp4Experts::kGroupBytes,
                             .begin = byte,
                             .size = last / 2 - byte + 1};
    const Strips scale_strips{.tensor = experts_.scales,
                              .row_bytes = experts_.groups,
                              .begin = group,
                              .size = last / Mxfp4Experts::kGroupSize - group + 1};
    const Bytes codes = TRY(read_strips(model, code_strips, expert * rows, rows));
    const Bytes scales = TRY(read_strips(model, scale_strips, expert * rows, rows));
    for (std::uint64_t row = 0; row < rows; row += kTileRows) {
      const std::uint64_t end = std::min(rows, row + kTileRows);
      for (std::uint64_t k = column; k <= last; ++k) {
        float* const values = out.data() + (k - column) * rows;
        const unsigned shift = k % 2 == 0 ? 0 : 4;
        for (std::uint64_t r = row; r < end; ++r) {
          const auto pair = std::to_integer<unsigned>(codes[r * code_strips.size + k / 2 - byte]);
          const std::byte scale = scales[r * scale_strips.size + k / Mxfp4Experts::kGroupSize - group];
          values[r] = kE2M1[pair >> shift & 15U] * from_e8m0(scale);
        }
      }
    }
    return {};
  }

  Mxfp4Experts experts_;
};

}  // namespace

std::unique_ptr<const RowDecoder> decode_experts(const Mxfp4Experts& experts) {
  Grouped grouped{.columns = experts.columns(), .group_size = Mxfp4Experts::kGroupSize};
  grouped.codes =
      nibble_codes(*experts.blocks, experts.columns(), experts.groups * Mxfp4Experts::kGroupBytes, Nibbles::kLowFirst, kE2M1);
  grouped.scales =
      parameter_table({.tensor = experts.scales, .dtype = DType::kF8E8M0, .groups = experts.groups, .zero = ZeroScale::kAllowed});
  return grouped_decoder(std::move(grouped));
}

std::unique_ptr<const RowDecoder> decode_transposed_experts(const Mxfp4Experts& experts) {
  return std::make_unique<TransposedDecoder>(experts);
}

}  // namespace ballast
