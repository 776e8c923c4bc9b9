#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ballast/dtype.h>

#include "tests/support/files.h"

namespace ballast::test {

struct TensorText {
  std::string name;
  DType dtype;
  std::vector<std::uint64_t> shape;
  std::string data;

  // Without `bytes`, the data is zeros.
  TensorText(std::string_view name_text, DType type, std::vector<std::uint64_t> dims, std::string bytes = {})
      : name(name_text), dtype(type), shape(std::move(dims)), data(std::move(bytes)) {
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : shape) elements *= dim;
    if (data.empty()) data.resize(elements * bits(dtype) / 8);
  }
};

// The bytes of some values, little endian.
inline std::string raw(const std::vector<float>& values) { return to_text(std::as_bytes(std::span(values))); }

// A SafeTensors file of these tensors, in this order, with this JSON as its metadata.
inline std::string safetensors(const std::vector<TensorText>& tensors, std::string_view metadata = {}) {
  std::string header = metadata.empty() ? "" : fmt::format(R"({{"__metadata__":{})", metadata);
  std::string data;
  for (const TensorText& tensor : tensors) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",", tensor.name,
                    ballast::name(tensor.dtype), fmt::join(tensor.shape, ","), data.size(), data.size() + tensor.data.size());
    data += tensor.data;
  }
  return safetensors(header.empty() ? "{}" : header + "}", data);
}

}  // namespace ballast::test
