#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ballast/tensor.h>

#include "base/bytes.h"

namespace ballast {

// Maps a tensor's name to its position in a table. A flat hash table with a random seed per process, so that a crafted file
// cannot make its names collide.
class NameIndex {
 public:
  NameIndex() = default;

  // Reserves space for `tensors` entries; it does not grow.
  explicit NameIndex(std::size_t tensors);

  // Adds all entries of `table`. Stops at the first duplicate name and returns both positions, the earlier one first.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> insert_all(std::span<const TensorInfo> table);

  // Adds the first entry of each name. Returns the duplicates in order, as pairs (first position, duplicate's position).
  std::vector<std::pair<std::uint32_t, std::uint32_t>> insert_first(std::span<const TensorInfo> table);

  // Adds the entry at `position`. If its name is a duplicate, changes nothing and returns the position of the first.
  std::optional<std::uint32_t> insert(std::span<const TensorInfo> table, std::uint32_t position);

  std::optional<std::uint32_t> find(std::span<const TensorInfo> table, std::string_view name) const;

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t position = kEmpty;
  };
  static constexpr std::uint32_t kEmpty = UINT32_MAX;

  std::optional<std::uint32_t> insert(std::span<const TensorInfo> table, std::uint32_t position, std::uint64_t hash);

  // Adds all entries of `table`. Calls on_duplicate(first position, duplicate's position), which returns whether to continue.
  template <class OnDuplicate>
  void insert_each(std::span<const TensorInfo> table, OnDuplicate&& on_duplicate);

  // The slot that holds `name`, or the empty slot where it would go.
  std::size_t probe(std::span<const TensorInfo> table, std::string_view name, std::uint64_t hash) const;

  LargeVector<Slot> slots_;  // the size is a power of two; at most half are used
};

}  // namespace ballast
