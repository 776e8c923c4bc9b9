#include "scheme/comfyui/swizzled.h"

#include <iterator>
#include <utility>

#include <ballast/convert.h>

#include "base/bytes.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr std::uint64_t kTileRows = 128;
constexpr std::uint64_t kTileGroups = 4;
constexpr std::uint64_t kTile = kTileRows * kTileGroups;

std::uint64_t tiles(std::uint64_t length, std::uint64_t size) { return length / size + (length % size != 0 ? 1 : 0); }

class SwizzledParameters final : public Parameters {
 public:
  explicit SwizzledParameters(const SwizzledScales& scales) : scales_(scales) {}

  std::uint64_t groups() const override { return scales_.groups; }

  // Reads whole rows of tiles.
  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const std::uint64_t across = tiles(scales_.stored_groups, kTileGroups);
    const std::uint64_t begin = first / kTileRows;
    const std::uint64_t size = (tiles(first + count, kTileRows) - begin) * across * kTile;
    const Bytes bytes(allocate_bytes(size));
    TRY(model.read_into(scales_.tensor->name, begin * across * kTile, {bytes.get(), size}));
    std::vector<std::byte> plain(out.size());
    auto next = plain.begin();
    for (std::uint64_t row = first; row < first + count; ++row) {
      const std::uint64_t tile_row = (row / kTileRows - begin) * across;
      const std::uint64_t in_tile = row % 32 * 16 + row % kTileRows / 32 * 4;
      for (std::uint64_t group = 0; group < scales_.groups; ++group) {
        *next++ = bytes[(tile_row + group / kTileGroups) * kTile + in_tile + group % kTileGroups];
      }
    }
    TRY(convert_values(scales_.dtype, plain, DType::kF32, std::as_writable_bytes(out)));
    if (scales_.factor == nullptr) return {};
    const float factor = TRY(read_floats(model, *scales_.factor, scales_.factor->dtype)).front();
    for (float& scale : out) scale *= factor;
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    // Groups of zeros and the padding have a scale of zero.
    auto found = TRY(check_scales(model, *scales_.tensor, scales_.dtype, ZeroScale::kAllowed));
    if (scales_.factor == nullptr) return found;
    std::ranges::move(TRY(check_scales(model, *scales_.factor, scales_.factor->dtype, ZeroScale::kDefect)),
                      std::back_inserter(found));
    return found;
  }

 private:
  SwizzledScales scales_;
};

}  // namespace

std::unique_ptr<const Parameters> swizzled_scales(const SwizzledScales& scales) {
  return std::make_unique<SwizzledParameters>(scales);
}

std::vector<std::uint64_t> swizzled_shape(std::uint64_t rows, std::uint64_t groups) {
  return {tiles(rows, kTileRows) * kTileRows, tiles(groups, kTileGroups) * kTileGroups};
}

}  // namespace ballast
