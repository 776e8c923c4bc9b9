#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ballast/allocator.h>
#include <ballast/quantized_weights.h>

namespace ballast::test {

inline QuantizedWeights load(const std::string& directory, const LoadOptions& options = {}) {
  auto weights = load_quantized_weights(directory, options);
  EXPECT_TRUE(weights) << weights.error().message;
  return std::move(weights).value();
}

inline std::vector<std::string_view> names(const QuantizedWeights& weights) {
  std::vector<std::string_view> names;
  for (const QuantizedWeight& weight : weights.weights()) names.push_back(weight.name);
  return names;
}

// All of a model in memory that it gives, once.
class OneAllocation final : public Allocator {
 public:
  std::byte* allocate(std::size_t size) override {
    begin = full ? nullptr : host_allocator().allocate(size);
    end = full ? nullptr : begin + size;
    ++allocations;
    return begin;
  }
  void free(std::byte* bytes, std::size_t size) override {
    ++frees;
    host_allocator().free(bytes, size);
  }

  bool full = false;
  int allocations = 0;
  int frees = 0;
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
};

}  // namespace ballast::test
