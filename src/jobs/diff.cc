#include <ballast/diff.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>

#include "base/block_loop.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/try.h"
#include "convert/decode.h"
#include "model/state.h"

namespace ballast {
namespace {

constexpr std::uint64_t kBlockValues = std::uint64_t{1} << 19;
constexpr std::size_t kChunk = 4096;  // numbers decoded at a time

struct Pair {
  const TensorInfo* a;
  const TensorInfo* b;
  ValueDifference found;
};

struct PairBlock {
  std::size_t pair;
  std::uint64_t first;
  std::uint64_t count;
};

std::uint64_t byte_count(DType dtype, std::uint64_t values) { return values * bits(dtype) / 8; }

bool can_compare(const Pair& pair) {
  if (pair.a->dtype == pair.b->dtype) return true;
  return can_decode(pair.a->dtype) && can_decode(pair.b->dtype) && parts(pair.a->dtype) == parts(pair.b->dtype);
}

// Compares two ranges of values.
class Comparison {
 public:
  Comparison(DType dtype_a, DType dtype_b) : dtype_a_(dtype_a), dtype_b_(dtype_b) {}

  ValueDifference run(std::span<const std::byte> a, std::span<const std::byte> b, std::uint64_t count) {
    if (dtype_a_ == dtype_b_ && std::memcmp(a.data(), b.data(), a.size()) == 0) return {};
    if (!can_decode(dtype_a_)) return whole_bytes(a, b);
    for (std::uint64_t at = 0; at < count; at += kChunk) compare(a, b, at, std::min<std::uint64_t>(kChunk, count - at));
    return found_;
  }

 private:
  void compare(std::span<const std::byte> a, std::span<const std::byte> b, std::uint64_t at, std::uint64_t count) {
    const unsigned numbers = parts(dtype_a_);
    const auto decode_part = [&](DType dtype, std::span<const std::byte> bytes, std::span<double> out) {
      decode(dtype, bytes.subspan(byte_count(dtype, at), byte_count(dtype, count)), out.first(count * parts(dtype)));
    };
    decode_part(dtype_a_, a, values_a_);
    decode_part(dtype_b_, b, values_b_);
    for (std::uint64_t i = 0; i < count; ++i) {
      bool differs = dtype_a_ == dtype_b_ && stored_differently(a, b, at + i);
      for (std::uint64_t n = i * numbers; n < (i + 1) * numbers; ++n) {
        const double x = values_a_[n];
        const double y = values_b_[n];
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        differs = true;
        const double difference =
            std::isfinite(x) && std::isfinite(y) ? std::abs(x - y) : std::numeric_limits<double>::infinity();
        found_.max_difference = std::max(found_.max_difference, difference);
      }
      if (differs && is_wide_integer()) note_wide(a, b, at + i);
      if (differs) note(at + i);
    }
  }

  bool is_wide_integer() const { return dtype_a_ == dtype_b_ && (dtype_a_ == DType::kI64 || dtype_a_ == DType::kU64); }

  // A double does not hold every 64-bit integer, but nearly their distance.
  void note_wide(std::span<const std::byte> a, std::span<const std::byte> b, std::uint64_t i) {
    std::uint64_t x = 0;
    std::uint64_t y = 0;
    std::memcpy(&x, a.data() + i * sizeof(x), sizeof(x));
    std::memcpy(&y, b.data() + i * sizeof(y), sizeof(y));
    const bool less = dtype_a_ == DType::kI64 ? static_cast<std::int64_t>(x) < static_cast<std::int64_t>(y) : x < y;
    found_.max_difference = std::max(found_.max_difference, static_cast<double>(less ? y - x : x - y));
  }

  // Different encodings of one number, such as 0 and -0 or two NaNs, are different values.
  bool stored_differently(std::span<const std::byte> a, std::span<const std::byte> b, std::uint64_t i) const {
    const unsigned width = bits(dtype_a_);
    if (width >= 8) return std::memcmp(a.data() + i * width / 8, b.data() + i * width / 8, width / 8) != 0;
    const auto nibble = [&](std::span<const std::byte> bytes) {
      return std::to_integer<unsigned>(bytes[i / 2]) >> (i % 2 * 4) & 0xfU;
    };
    return nibble(a) != nibble(b);
  }

  // F6 has no standard packing: every byte that differs counts as one value.
  ValueDifference whole_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) note(i);
    }
    found_.max_difference = std::nan("");
    return found_;
  }

  void note(std::uint64_t i) {
    if (found_.count++ == 0) found_.first = i;
  }

  DType dtype_a_;
  DType dtype_b_;
  ValueDifference found_;
  std::array<double, 2 * kChunk> values_a_{};
  std::array<double, 2 * kChunk> values_b_{};
};

class Diff {
 public:
  Diff(const Model& a, const Model& b, const WorkOptions& work) : a_(a), b_(b), work_(work) {}

  Result<void> run(std::vector<Pair>& pairs) {
    std::vector<PairBlock> blocks;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (!can_compare(pairs[i]) || !std::ranges::equal(pairs[i].a->shape, pairs[i].b->shape)) continue;
      const std::uint64_t values = pairs[i].a->elements();
      for (std::uint64_t at = 0; at < values; at += kBlockValues) {
        blocks.push_back({.pair = i, .first = at, .count = std::min(kBlockValues, values - at)});
      }
      total += pairs[i].a->bytes() + pairs[i].b->bytes();
    }
    std::mutex mutex;
    for (const Model* const model : {&a_, &b_}) ModelAccess::expect(*model, model->tensors());
    std::vector<std::pair<Bytes, Bytes>> buffers(thread_count(work_.threads));
    return BlockLoop{.work = work_, .total = total}.run(
        blocks.size(),
        [&](unsigned worker, std::size_t number) -> Result<void> {
          const PairBlock& block = blocks[number];
          Pair& pair = pairs[block.pair];
          const ValueDifference found = TRY(compare(pair, block, buffers[worker]));
          const std::scoped_lock lock(mutex);
          merge(pair.found, found, can_decode(pair.a->dtype) ? block.first : byte_count(pair.a->dtype, block.first));
          return {};
        },
        [&](std::size_t number) {
          const PairBlock& block = blocks[number];
          const Pair& pair = pairs[block.pair];
          return BlockDone{.bytes = byte_count(pair.a->dtype, block.count) + byte_count(pair.b->dtype, block.count),
                           .what = pair.a->name};
        });
  }

 private:
  Result<ValueDifference> compare(const Pair& pair, const PairBlock& block, std::pair<Bytes, Bytes>& buffers) const {
    constexpr std::size_t kMostBytes = kBlockValues * 8;
    if (!buffers.first) buffers = {Bytes(allocate_bytes(kMostBytes)), Bytes(allocate_bytes(kMostBytes))};
    const std::span<std::byte> a(buffers.first.get(), byte_count(pair.a->dtype, block.count));
    const std::span<std::byte> b(buffers.second.get(), byte_count(pair.b->dtype, block.count));
    TRY(a_.read_into(pair.a->name, byte_count(pair.a->dtype, block.first), a));
    TRY(b_.read_into(pair.b->name, byte_count(pair.b->dtype, block.first), b));
    return Comparison(pair.a->dtype, pair.b->dtype).run(a, b, block.count);
  }

  static void merge(ValueDifference& all, const ValueDifference& found, std::uint64_t offset) {
    if (found.count == 0) return;
    const std::uint64_t first = found.first + offset;
    all.first = all.count == 0 ? first : std::min(all.first, first);
    all.count += found.count;
    all.max_difference =
        std::isnan(found.max_difference) ? found.max_difference : std::max(all.max_difference, found.max_difference);
  }

  const Model& a_;
  const Model& b_;
  const WorkOptions& work_;
};

std::vector<std::string> different_keys(const Metadata& a, const Metadata& b) {
  std::set<std::string> keys;
  for (const auto& [key, value] : a) {
    if (const auto other = b.find(key); other == b.end() || other->second != value) keys.insert(key);
  }
  for (const auto& [key, value] : b) {
    if (!a.contains(key)) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
}

}  // namespace

Result<DiffReport> diff_models(const Model& a, const Model& b, const WorkOptions& work) {
  DiffReport report{.metadata = different_keys(a.metadata(), b.metadata())};
  std::vector<Pair> pairs;
  for (const TensorInfo& tensor : a.tensors()) {
    if (const TensorInfo* const other = b.find(tensor.name)) {
      pairs.push_back({.a = &tensor, .b = other, .found = {}});
    } else {
      report.only_a.emplace_back(tensor.name);
    }
  }
  for (const TensorInfo& tensor : b.tensors()) {
    if (!a.has(tensor.name)) report.only_b.emplace_back(tensor.name);
  }
  TRY(Diff(a, b, work).run(pairs));

  for (Pair& pair : pairs) {
    const bool same_shape = std::ranges::equal(pair.a->shape, pair.b->shape);
    if (same_shape && pair.a->dtype == pair.b->dtype && pair.found.count == 0) {
      ++report.same;
      continue;
    }
    TensorDifference difference{.name = std::string(pair.a->name),
                                .dtype_a = pair.a->dtype,
                                .dtype_b = pair.b->dtype,
                                .shape_a = {pair.a->shape.begin(), pair.a->shape.end()},
                                .shape_b = {pair.b->shape.begin(), pair.b->shape.end()}};
    pair.found.values = can_decode(pair.a->dtype) ? pair.a->elements() : pair.a->bytes();
    if (same_shape && can_compare(pair)) difference.values = pair.found;
    report.changed.push_back(std::move(difference));
  }
  return report;
}

}  // namespace ballast
