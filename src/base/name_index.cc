#include "base/name_index.h"

#include <array>
#include <bit>
#include <random>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace ballast {
namespace {

std::uint64_t hash_name(std::string_view name) {
  static const std::uint64_t seed = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

}  // namespace

NameIndex::NameIndex(std::size_t tensors) : slots_(std::bit_ceil(tensors * 2 + 1)) {}

std::size_t NameIndex::probe(std::span<const TensorInfo> table, std::string_view name, std::uint64_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  const auto short_hash = static_cast<std::uint32_t>(hash >> 32);
  std::size_t i = hash & mask;
  while (slots_[i].position != kEmpty && (slots_[i].hash != short_hash || table[slots_[i].position].name != name)) {
    i = (i + 1) & mask;
  }
  return i;
}

template <class OnDuplicate>
void NameIndex::insert_each(std::span<const TensorInfo> table, OnDuplicate&& on_duplicate) {
  constexpr std::size_t kAhead = 32;  // slots to prefetch, to hide memory latency
  std::array<std::uint64_t, kAhead> hashes{};
  for (std::size_t i = 0; i < table.size() + kAhead; ++i) {
    std::uint64_t& hash = hashes[i % kAhead];
    if (i >= kAhead) {
      const auto position = static_cast<std::uint32_t>(i - kAhead);
      const auto other = insert(table, position, hash);
      if (other && !on_duplicate(*other, position)) return;
    }
    if (i < table.size()) {
      hash = hash_name(table[i].name);
      __builtin_prefetch(&slots_[hash & (slots_.size() - 1)], 1);
    }
  }
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> NameIndex::insert_all(std::span<const TensorInfo> table) {
  std::optional<std::pair<std::uint32_t, std::uint32_t>> duplicate;
  insert_each(table, [&](std::uint32_t first, std::uint32_t second) {
    duplicate = {first, second};
    return false;
  });
  return duplicate;
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> NameIndex::insert_first(std::span<const TensorInfo> table) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> duplicates;
  insert_each(table, [&](std::uint32_t first, std::uint32_t second) {
    duplicates.emplace_back(first, second);
    return true;
  });
  return duplicates;
}

std::optional<std::uint32_t> NameIndex::insert(std::span<const TensorInfo> table, std::uint32_t position) {
  return insert(table, position, hash_name(table[position].name));
}

std::optional<std::uint32_t> NameIndex::insert(std::span<const TensorInfo> table, std::uint32_t position, std::uint64_t hash) {
  Slot& slot = slots_[probe(table, table[position].name, hash)];
  if (slot.position != kEmpty) return slot.position;
  slot = {.hash = static_cast<std::uint32_t>(hash >> 32), .position = position};
  return std::nullopt;
}

std::optional<std::uint32_t> NameIndex::find(std::span<const TensorInfo> table, std::string_view name) const {
  if (slots_.empty()) return std::nullopt;
  const Slot& slot = slots_[probe(table, name, hash_name(name))];
  if (slot.position == kEmpty) return std::nullopt;
  return slot.position;
}

}  // namespace ballast
