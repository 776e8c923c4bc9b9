#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ballast/tensor.h>

#include "base/bytes.h"

namespace ballast {

// Finds a tensor's position in a table by its name. A flat hash table with a seed drawn per process, so that a crafted
// file cannot make its names collide.
class NameIndex {
 public:
  NameIndex() = default;

  // Makes room for `tensors` entries.
  explicit NameIndex(std::size_t tensors);

  // Adds every entry of `table`. Stops at one whose name is taken and returns the two: first the position that has it.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> insert_all(std::span<const TensorInfo> table);

  // Adds every entry of `table` whose name is not taken yet. Returns the others in order, each after the position that has its
  // name.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> insert_first(std::span<const TensorInfo> table);

  // Adds the entry `position` of `table`; if its name is taken, changes nothing and returns the position that has it.
  std::optional<std::uint32_t> insert(std::span<const TensorInfo> table, std::uint32_t position);

  std::optional<std::uint32_t> find(std::span<const TensorInfo> table, std::string_view name) const;

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t position = kEmpty;
  };
  static constexpr std::uint32_t kEmpty = UINT32_MAX;

  std::optional<std::uint32_t> insert(std::span<const TensorInfo> table, std::uint32_t position, std::uint64_t hash);

  // Adds every entry of `table`; on_clash(position that has its name, position) says whether to go on.
  template <class OnClash>
  void insert_each(std::span<const TensorInfo> table, OnClash&& on_clash);

  // The slot that holds `name`, or the empty one where it belongs.
  std::size_t probe(std::span<const TensorInfo> table, std::string_view name, std::uint64_t hash) const;

  LargeVector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace ballast
