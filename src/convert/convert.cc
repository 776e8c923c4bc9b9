#include <ballast/convert.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "convert/kernels.h"
#include "convert/wide.h"

namespace ballast {
namespace {

constexpr std::size_t kChunk = 2048;                          // values; intermediate results stay in the L1 cache
constexpr std::size_t kStreamedBytes = std::size_t{8} << 20;  // output of this size or more does not stay in the caches

constexpr bool is_packed_f6(DType dtype) { return dtype == DType::kF6E2M3 || dtype == DType::kF6E3M2; }
constexpr bool is_convertible(DType dtype) { return !is_packed_f6(dtype) && dtype != DType::kC64; }
constexpr bool fits_f32(DType dtype) { return info(dtype).kind == NumberKind::kFloat && dtype != DType::kF64; }

// Consecutive values to convert.
struct Run {
  DType from;
  const std::byte* in;
  DType to;
  std::byte* out;
  std::size_t count;
  std::uint64_t index;  // of the first value, for losses
  Stores stores;

  Run part(std::size_t begin, std::size_t length) const {
    Run run = *this;
    run.in += begin * bits(from) / 8;
    run.out += begin * bits(to) / 8;
    run.count = length;
    run.index += begin;
    return run;
  }
};

template <class T>
using Chunk = std::array<T, kChunk>;

template <class T>
std::span<T> first(Chunk<T>& chunk, std::size_t count) {
  return std::span(chunk).first(count);
}

std::byte* as_bytes(Chunk<float>& chunk) { return reinterpret_cast<std::byte*>(chunk.data()); }

void load_floats(DType from, const std::byte* in, std::size_t count, Chunk<float>& out) {
  if (from == DType::kF32) {
    std::memcpy(out.data(), in, count * sizeof(float));
  } else {
    to_f32(from, in, count, as_bytes(out), Stores::kOrdinary);
  }
}

void load_doubles(DType from, const std::byte* in, std::span<double> out) {
  if (from == DType::kF64) {
    std::memcpy(out.data(), in, out.size_bytes());
    return;
  }
  Chunk<float> floats;
  load_floats(from, in, out.size(), floats);
  std::copy_n(floats.begin(), out.size(), out.begin());
}

// `run.to` is a float of at most 32 bits.
void store_doubles(const Run& run, std::span<const double> values) {
  Chunk<float> floats;
  if (run.to == DType::kF32) {
    std::ranges::transform(values, floats.begin(), [](double value) { return static_cast<float>(value); });
    std::memcpy(run.out, floats.data(), values.size() * sizeof(float));
  } else {
    std::ranges::transform(values, floats.begin(), [](double value) { return to_odd_float(value); });
    from_f32(run.to, as_bytes(floats), values.size(), run.out, run.stores);
  }
}

// If rounding to odd changed an integer, the result is not representable as a float of at most 32 bits. So the float differs from
// the double exactly if something was lost.
template <class Wide>
void integers_to_floats(const Run& run, std::span<const Wide> values, LossCounter& losses) {
  Chunk<double> doubles;
  std::ranges::transform(values, doubles.begin(), [](Wide value) { return to_odd_double(value); });
  store_doubles(run, first(doubles, run.count));
  Chunk<float> floats;
  load_floats(run.to, run.out, run.count, floats);
  for (std::size_t i = 0; i < run.count; ++i) losses.add(static_cast<double>(floats[i]) != doubles[i], run.index + i);
}

// F32 represents integers of at most 16 bits exactly.
void small_integers_to_floats(const Run& run, LossCounter& losses) {
  Chunk<float> values;
  load_integers(run.from, run.in, first(values, run.count));
  if (run.to == DType::kF32) {
    std::memcpy(run.out, values.data(), run.count * sizeof(float));
    return;
  }
  from_f32(run.to, as_bytes(values), run.count, run.out, run.stores);
  Chunk<float> floats;
  load_floats(run.to, run.out, run.count, floats);
  for (std::size_t i = 0; i < run.count; ++i) losses.add(floats[i] != values[i], run.index + i);
}

template <class Wide>
void integers_to_f64(const Run& run, std::span<const Wide> values, LossCounter& losses) {
  for (std::size_t i = 0; i < run.count; ++i) {
    const auto value = static_cast<double>(values[i]);
    std::memcpy(run.out + i * sizeof(value), &value, sizeof(value));
    losses.add(significant_bits(values[i]) > std::numeric_limits<double>::digits, run.index + i);
  }
}

template <class Wide>
void from_integers(const Run& run, std::span<const Wide> values, LossCounter& losses) {
  if (is_integer(run.to)) return store_integers(run.to, values, run.out, run.index, losses);
  if (run.to == DType::kF64) return integers_to_f64(run, values, losses);
  integers_to_floats(run, values, losses);
}

// Converts at most kChunk values through a type that can represent every value of the source.
void convert_chunk(const Run& run, LossCounter& losses) {
  if (is_integer(run.from) && bits(run.from) <= 16 && fits_f32(run.to)) return small_integers_to_floats(run, losses);
  if (is_integer(run.from)) {
    Chunk<std::int64_t> integers;
    load_integers(run.from, run.in, first(integers, run.count));
    if (run.from != DType::kU64) return from_integers<std::int64_t>(run, first(integers, run.count), losses);
    return from_integers(run, std::span(reinterpret_cast<const std::uint64_t*>(integers.data()), run.count), losses);
  }
  Chunk<double> doubles;
  const std::span values = first(doubles, run.count);
  load_doubles(run.from, run.in, values);
  if (is_integer(run.to)) return store_integers(run.to, values, run.out, run.index, losses);
  if (run.to != DType::kF64) return store_doubles(run, values);
  std::memcpy(run.out, values.data(), values.size_bytes());
}

// Works in small steps so that reads and writes of memory overlap. Streaming stores are slower when mixed with ordinary ones.
void convert_through_f32(const Run& run) {
  constexpr std::size_t kStep = 256;
  Chunk<float> floats;
  for (std::size_t begin = 0; begin < run.count; begin += kStep) {
    const Run part = run.part(begin, std::min(kStep, run.count - begin));
    to_f32(part.from, part.in, part.count, as_bytes(floats), Stores::kOrdinary);
    from_f32(part.to, as_bytes(floats), part.count, part.out, Stores::kOrdinary);
  }
}

ConversionLoss convert(const Run& run) {
  LossCounter losses;
  if (run.from == run.to) {
    if (run.count > 0) std::memcpy(run.out, run.in, run.count * bits(run.from) / 8);
  } else if (run.from == DType::kF32 && fits_f32(run.to)) {
    from_f32(run.to, run.in, run.count, run.out, run.stores);
  } else if (run.to == DType::kF32 && fits_f32(run.from)) {
    to_f32(run.from, run.in, run.count, run.out, run.stores);
  } else if (fits_f32(run.from) && fits_f32(run.to)) {
    convert_through_f32(run);
  } else {
    for (std::size_t begin = 0; begin < run.count; begin += kChunk) {
      convert_chunk(run.part(begin, std::min(kChunk, run.count - begin)), losses);
    }
  }
  if (run.stores == Stores::kStreaming) finish_streaming();
  return losses.loss();
}

std::unexpected<Error> no_conversion(DType from, DType to) {
  const DType obstacle = is_convertible(from) ? to : from;
  return fail(Errc::kUnsupported, "cannot convert {} to {}: {} {}", name(from), name(to), name(obstacle),
              is_packed_f6(obstacle) ? "has no standard packing" : "is complex");
}

}  // namespace

bool can_convert(DType from, DType to) { return from == to || (is_convertible(from) && is_convertible(to)); }

Result<ConversionLoss> convert_values(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  if (!can_convert(from, to)) return no_conversion(from, to);
  if (in.size() * 8 % bits(from) != 0) {
    return fail(Errc::kInvalidArgument, "{} bytes is not a whole number of {}-bit {} values", in.size(), bits(from), name(from));
  }
  const std::size_t count = in.size() * 8 / bits(from);
  const std::size_t out_bits = count * bits(to);
  if (out_bits % 8 != 0) {
    return fail(Errc::kInvalidArgument, "{} {} values of {} bits do not fill whole bytes", count, name(to), bits(to));
  }
  if (out_bits / 8 != out.size()) {
    return fail(Errc::kInvalidArgument, "{} {} values need {} bytes, but the output has {}", count, name(to), out_bits / 8,
                out.size());
  }
  const bool streams = out.size() >= kStreamedBytes && !is_integer(from);  // conversions from integers read their results back
  return convert({.from = from,
                  .in = in.data(),
                  .to = to,
                  .out = out.data(),
                  .count = count,
                  .index = 0,
                  .stores = streams ? Stores::kStreaming : Stores::kOrdinary});
}

}  // namespace ballast
