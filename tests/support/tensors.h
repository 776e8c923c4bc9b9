#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
  std::string data = {};  // zeros if there is none

  std::string bytes() const {
    if (!data.empty()) return data;
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : shape) elements *= dim;
    return std::string(elements * bits(dtype) / 8, '\0');
  }
};

// A SafeTensors file of these tensors, in this order.
inline std::string safetensors(const std::vector<TensorText>& tensors) {
  std::string header;
  std::string data;
  for (const TensorText& tensor : tensors) {
    const std::string bytes = tensor.bytes();
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",", tensor.name,
                    ballast::name(tensor.dtype), fmt::join(tensor.shape, ","), data.size(), data.size() + bytes.size());
    data += bytes;
  }
  return safetensors(header.empty() ? "{}" : header + "}", data);
}

}  // namespace ballast::test
