// Scales that are floats, each for the values of a group in one row or in adjacent rows.

#include <algorithm>
#include <array>
#include <vector>

#include "quantize/chunks.h"

namespace ballast {
namespace {

class BandScales {
 public:
  BandScales(const RowFormat& format, DType dtype, std::span<const std::byte> rows, std::span<const float> importance)
      : format_(format), dtype_(dtype), rows_(rows), importance_(importance), buffers_(format) {}

  // The scale of each group of the columns in some rows.
  std::span<const float> find(std::uint64_t first, std::uint64_t count, bool is_searched) {
    const std::uint64_t groups = format_.groups();
    largest_.assign(groups, 0);
    for_each_run(first, count, [&](const GroupRun& run, std::uint64_t group) { raise_largest(run, largest_.data() + group); });
    to_try_.resize(groups * kScalesToTry);
    for (std::uint64_t i = 0; i < groups; ++i) scales_to_try(format_, largest_[i], to_try_.data() + i * kScalesToTry);
    best_.assign(groups, 0);
    if (is_searched) search(first, count);
    for (std::uint64_t i = 0; i < groups; ++i) largest_[i] = to_try_[i * kScalesToTry + best_[i]];
    return largest_;
  }

 private:
  void search(std::uint64_t first, std::uint64_t count) {
    errors_.assign(to_try_.size(), 0);
    for_each_run(first, count, [&](const GroupRun& run, std::uint64_t group) {
      add_errors_of_scales(run, to_try_.data() + group * kScalesToTry, errors_.data() + group * kScalesToTry);
    });
    for (std::size_t i = 0; i < best_.size(); ++i) {
      const auto errors = std::span(errors_).subspan(i * kScalesToTry, kScalesToTry);
      best_[i] = static_cast<std::size_t>(std::ranges::min_element(errors) - errors.begin());
    }
  }

  // Calls work(run, first group) for adjacent groups of one row.
  template <class Work>
  void for_each_run(std::uint64_t first, std::uint64_t count, Work&& work) {
    for (std::uint64_t row = first; row < first + count; ++row) {
      for_each_chunk(format_, row, 1, [&](const Chunk& chunk) {
        const std::uint64_t at = (row * format_.columns + chunk.column) * bits(dtype_) / 8;
        work(GroupRun{.format = format_,
                      .groups = groups_of(format_, chunk.count),
                      .values = values_of(format_, dtype_, rows_.data() + at, chunk, buffers_),
                      .importance = importance_of(format_, importance_, chunk, buffers_),
                      .codes = buffers_.codes.data(),
                      .scales = nullptr,
                      .offsets = nullptr},
             chunk.column / format_.group_size);
      });
    }
  }

  const RowFormat& format_;
  DType dtype_;
  std::span<const std::byte> rows_;
  std::span<const float> importance_;
  ChunkBuffers buffers_;
  std::vector<float> largest_;
  std::vector<float> to_try_;  // kScalesToTry for each group
  std::vector<float> errors_;  // of each
  std::vector<std::size_t> best_;
};

}  // namespace

float largest_magnitude(DType dtype, std::span<const std::byte> values) {
  constexpr unsigned kPiece = 1024;
  if (values.empty()) return 0;
  const RowFormat format{.columns = values.size() * 8 / bits(dtype), .group_size = kPiece};
  ChunkBuffers buffers(format);
  float largest = 0;
  for_each_chunk(format, 0, 1, [&](const Chunk& chunk) {
    std::array<float, kChunk / kPiece> found{};
    const GroupRun run{.format = format,
                       .groups = groups_of(format, chunk.count),
                       .values = values_of(format, dtype, values.data() + chunk.column * bits(dtype) / 8, chunk, buffers),
                       .importance = nullptr,
                       .codes = nullptr,
                       .scales = nullptr,
                       .offsets = nullptr};
    raise_largest(run, found.data());
    largest = std::max(largest, std::ranges::max(found));
  });
  return largest;
}

float fp8_scale(float largest, DType dtype) {
  std::array<float, kScalesToTry> scales{};
  scales_to_try({.parameters = dtype}, largest, scales.data());
  return scales.front();
}

void choose_band_scales(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                        std::span<const float> importance, std::span<float> scales) {
  if (format.whole_scale != 0) {
    std::ranges::fill(scales, format.whole_scale);
    return;
  }
  const std::uint64_t groups = format.groups();
  const std::uint64_t count = scales.size() / groups;
  BandScales bands(format, dtype, rows, importance);
  for (std::uint64_t first = 0; first < count; first += format.band_rows) {
    const std::uint64_t end = std::min(first + format.band_rows, count);
    const auto found = bands.find(first, end - first, method != QuantizeMethod::kRtn);
    for (std::uint64_t row = first; row < end; ++row)
      std::ranges::copy(found, scales.begin() + static_cast<std::ptrdiff_t>(row * groups));
  }
}

}  // namespace ballast
