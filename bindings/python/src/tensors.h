#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nanobind/nanobind.h>

#include <ballast/sink.h>

#include "bytes.h"

namespace ballast::python {

using Pairs = std::map<std::string, std::string>;
using Item = std::tuple<std::string, std::string, std::vector<std::uint64_t>, nanobind::object>;  // name, dtype, shape, buffer

inline Metadata metadata_of(const std::optional<Pairs>& pairs) {
  return pairs ? Metadata(pairs->begin(), pairs->end()) : Metadata();
}

// Tensors in the caller's memory, which it holds.
class Tensors {
 public:
  explicit Tensors(const std::vector<Item>& items);

  const std::vector<TensorSpec>& specs() const { return specs_; }
  const std::vector<TensorView>& views() const { return views_; }

 private:
  std::vector<TensorSpec> specs_;
  std::deque<HeldBuffer> buffers_;
  std::vector<TensorView> views_;
};

}  // namespace ballast::python
