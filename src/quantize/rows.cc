#include "quantize/rows.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <ballast/convert.h>

#include "convert/kernels.h"
#include "quantize/chunks.h"
#include "quantize/groups.h"
#include "quantize/packing.h"

namespace ballast {
namespace {

// The offsets of a chunk in the buffers of all rows.
struct Places {
  std::uint64_t value;
  std::uint64_t packed;
  std::uint64_t group;

  Places(const RowFormat& format, const Chunk& chunk)
      : value(chunk.row * format.columns + chunk.column),
        packed(chunk.row * format.packed_bytes() + chunk.column * format.bits / 8),
        group(chunk.row * format.groups() + chunk.column / format.group_size) {}
};

std::uint64_t row_count(const RowFormat& format, DType dtype, std::span<const std::byte> rows) {
  return rows.size() * 8 / bits(dtype) / format.columns;
}

CodedGroups unpack_chunk(const RowFormat& format, const Chunk& chunk, std::span<const std::byte> packed,
                         std::span<const float> scales, std::span<const float> offsets, ChunkBuffers& buffers) {
  const Places at(format, chunk);
  unpack_codes(format.bits, packed.data() + at.packed, std::span(buffers.codes).first(chunk.count));
  const std::size_t filled = groups_of(format, chunk.count) * format.group_size;
  std::fill(buffers.codes.begin() + static_cast<std::ptrdiff_t>(chunk.count),
            buffers.codes.begin() + static_cast<std::ptrdiff_t>(filled), std::uint8_t{0});
  return {.format = format,
          .groups = groups_of(format, chunk.count),
          .codes = buffers.codes.data(),
          .scales = scales.data() + at.group,
          .offsets = offsets.data() + at.group};
}

// The input after `begin`, to prefetch.
std::span<const std::byte> next_chunk(DType dtype, std::span<const std::byte> rows, std::uint64_t begin) {
  return rows.subspan(begin, std::min<std::uint64_t>(kChunk * bits(dtype) / 8, rows.size() - begin));
}

// A chunk before it was coded and, if the codes are known, after.
struct Compared {
  const RowFormat& format;
  const Chunk& chunk;
  const float* values;
  const CodedGroups* coded;  // null: `decoded` is filled
  float* decoded;

  void decode() const {
    if (coded != nullptr) decode_groups(*coded, decoded);
  }
};

// Calls work(value, error) for each original value and its error after dequantizing.
template <class Work>
void for_each_gap(const Compared& compared, Work&& work) {
  compared.decode();
  ByColumn restore(compared.format.restore, compared.chunk);
  for (std::size_t i = 0; i < compared.chunk.count; ++i) {
    const auto unit = static_cast<double>(restore.next());
    const auto value = static_cast<double>(compared.values[i]);
    work(value * unit, (static_cast<double>(compared.decoded[i]) - value) * unit);
  }
}

// Value by value: for a partial group, for scaled columns, and for squares outside the range of floats.
QualitySums compare_one_by_one(const Compared& compared) {
  QualitySums sums{.count = compared.chunk.count};
  for_each_gap(compared, [&](double value, double gap) {
    sums.weights += value * value;
    sums.cross += value * gap;
    sums.error += gap * gap;
    sums.max_error = std::max(sums.max_error, std::abs(gap));
  });
  return sums;
}

QualitySums compare_chunk(const Compared& compared) {
  const RowFormat& format = compared.format;
  const std::size_t count = compared.chunk.count;
  if (count % format.group_size == 0 && format.restore.empty()) {
    constexpr double kSmallest = 1e-28;  // below, squares underflow
    const QualitySums sums = compared.coded != nullptr ? compare_groups(*compared.coded, compared.values)
                                                       : compare_values(compared.decoded, compared.values, count);
    if (std::isfinite(sums.weights) && std::isfinite(sums.error) && sums.weights >= kSmallest) return sums;
  }
  return compare_one_by_one(compared);
}

// The same, weighted by importance.
void add_weighted(const Compared& compared, std::span<const float> importance, QualitySums& sums) {
  if (importance.empty()) return;
  ByColumn weights(importance, compared.chunk);
  for_each_gap(compared, [&](double value, double gap) {
    const auto weight = static_cast<double>(weights.next());
    sums.weighted += weight * value * value;
    sums.weighted_error += weight * gap * gap;
  });
}

// Whether scales are floats that choose_band_scales() chooses.
bool has_band_scales(const RowFormat& format) {
  return format.element == Element::kFloat8 && format.parameters != DType::kF8E8M0;
}

// HQQ moves zero points, which float types do not have, and which are not codes.
void code_groups(QuantizeMethod method, const GroupRun& run) {
  if (has_band_scales(run.format)) return code_elements(run);
  if (run.format.element != Element::kInteger) return method == QuantizeMethod::kRtn ? round_elements(run) : search_elements(run);
  if (has_whole_zero(run.format.affine)) {
    return method == QuantizeMethod::kRtn ? round_whole_zero_groups(run) : search_whole_zero_groups(run);
  }
  switch (method) {
    case QuantizeMethod::kRtn: return rtn_groups(run);
    case QuantizeMethod::kSearch:
    case QuantizeMethod::kAuto: return search_groups(run);
    case QuantizeMethod::kHqq: return hqq_groups(run);
  }
}

}  // namespace

const float* values_of(const RowFormat& format, DType dtype, const std::byte* bytes, const Chunk& chunk, ChunkBuffers& buffers) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(bytes) % alignof(float) == 0;
  const bool as_they_are = format.restore.empty() && chunk.count % format.group_size == 0;
  if (dtype == DType::kF32 && aligned && as_they_are) return reinterpret_cast<const float*>(bytes);
  load_values(dtype, bytes, chunk.count, buffers.values);
  if (!format.restore.empty()) {
    ByColumn restore(format.restore, chunk);
    for (std::size_t i = 0; i < chunk.count; ++i) buffers.values[i] /= restore.next();
  }
  const auto count = static_cast<std::ptrdiff_t>(chunk.count);
  const auto filled = static_cast<std::ptrdiff_t>(groups_of(format, chunk.count) * format.group_size);
  std::fill(buffers.values.begin() + count, buffers.values.begin() + filled, buffers.values.front());
  return buffers.values.data();
}

const float* importance_of(const RowFormat& format, std::span<const float> importance, const Chunk& chunk,
                           ChunkBuffers& buffers) {
  const std::size_t filled = groups_of(format, chunk.count) * format.group_size;
  if (importance.empty() && format.restore.empty() && filled == chunk.count) return nullptr;
  ByColumn weights(importance, chunk);
  ByColumn restore(format.restore, chunk);
  for (std::size_t i = 0; i < chunk.count; ++i) {
    const float unit = restore.next();
    buffers.importance[i] = weights.next() * (unit * unit);
  }
  std::fill(buffers.importance.begin() + static_cast<std::ptrdiff_t>(chunk.count),
            buffers.importance.begin() + static_cast<std::ptrdiff_t>(filled), 0.0F);
  return buffers.importance.data();
}

void load_values(DType dtype, const std::byte* in, std::size_t count, std::span<float> out) {
  const std::span bytes = std::as_writable_bytes(out.first(count));
  if (dtype == DType::kF16 || dtype == DType::kBF16) return to_f32(dtype, in, count, bytes.data(), Stores::kOrdinary);
  const auto converted = convert_values(dtype, {in, count * bits(dtype) / 8}, DType::kF32, bytes);
  assert(converted);
}

std::string_view name(QuantizeMethod method) {
  constexpr std::array<std::string_view, 4> kNames{"auto", "rtn", "search", "hqq"};
  return kNames[static_cast<std::size_t>(method)];
}

QualitySums quantize_rows(QuantizeMethod method, const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                          std::span<const float> importance, const CodedRows& out) {
  ChunkBuffers buffers(format);
  QualitySums sums;
  if (has_band_scales(format)) choose_band_scales(method, format, dtype, rows, importance, out.scales);
  for_each_chunk(format, 0, row_count(format, dtype, rows), [&](const Chunk& chunk) {
    const Places at(format, chunk);
    const GroupRun run{.format = format,
                       .groups = groups_of(format, chunk.count),
                       .values = values_of(format, dtype, rows.data() + at.value * bits(dtype) / 8, chunk, buffers),
                       .importance = importance_of(format, importance, chunk, buffers),
                       .codes = buffers.codes.data(),
                       .scales = out.scales.data() + at.group,
                       .offsets = out.offsets.data() + at.group,
                       .next = next_chunk(dtype, rows, (at.value + chunk.count) * bits(dtype) / 8),
                       .weights = dtype};
    code_groups(method, run);
    pack_codes(format.bits, std::span(buffers.codes).first(chunk.count), out.packed.data() + at.packed);
    const CodedGroups coded{
        .format = format, .groups = run.groups, .codes = run.codes, .scales = run.scales, .offsets = run.offsets};
    const Compared compared{
        .format = format, .chunk = chunk, .values = run.values, .coded = &coded, .decoded = buffers.decoded.data()};
    sums.add(compare_chunk(compared));
    add_weighted(compared, importance, sums);
  });
  return sums;
}

void dequantize_rows(const RowFormat& format, std::span<const std::byte> packed, std::span<const float> scales,
                     std::span<const float> offsets, std::span<float> out) {
  ChunkBuffers buffers(format);
  for_each_chunk(format, 0, out.size() / format.columns, [&](const Chunk& chunk) {
    const Places at(format, chunk);
    const CodedGroups coded = unpack_chunk(format, chunk, packed, scales, offsets, buffers);
    decode_groups(coded, buffers.values.data());
    if (!format.restore.empty()) {
      ByColumn restore(format.restore, chunk);
      for (std::size_t i = 0; i < chunk.count; ++i) buffers.values[i] *= restore.next();
    }
    std::copy_n(buffers.values.begin(), chunk.count, out.begin() + static_cast<std::ptrdiff_t>(at.value));
  });
}

QualitySums compare_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows, std::span<const std::byte> packed,
                         std::span<const float> scales, std::span<const float> offsets, std::span<const float> importance) {
  ChunkBuffers buffers(format);
  QualitySums sums;
  for_each_chunk(format, 0, row_count(format, dtype, rows), [&](const Chunk& chunk) {
    const Places at(format, chunk);
    const float* const values = values_of(format, dtype, rows.data() + at.value * bits(dtype) / 8, chunk, buffers);
    const CodedGroups coded = unpack_chunk(format, chunk, packed, scales, offsets, buffers);
    const Compared compared{
        .format = format, .chunk = chunk, .values = values, .coded = &coded, .decoded = buffers.decoded.data()};
    sums.add(compare_chunk(compared));
    add_weighted(compared, importance, sums);
  });
  return sums;
}

QualitySums compare_decoded_rows(const RowFormat& format, DType dtype, std::span<const std::byte> rows,
                                 std::span<const float> decoded) {
  ChunkBuffers buffers(format);
  QualitySums sums;
  for_each_chunk(format, 0, row_count(format, dtype, rows), [&](const Chunk& chunk) {
    const std::uint64_t at = chunk.row * format.columns + chunk.column;
    std::ranges::copy(decoded.subspan(at, chunk.count), buffers.decoded.begin());
    const float* const values = values_of(format, dtype, rows.data() + at * bits(dtype) / 8, chunk, buffers);
    sums.add(
        compare_chunk({.format = format, .chunk = chunk, .values = values, .coded = nullptr, .decoded = buffers.decoded.data()}));
  });
  return sums;
}

}  // namespace ballast
