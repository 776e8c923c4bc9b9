#pragma once

#include <nlohmann/json.hpp>

#include <ballast/quantize.h>

#include "command.h"

namespace ballast::cli {

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;

  void add(std::uint64_t more_parameters, std::uint64_t more_bytes) {
    ++tensors;
    parameters += more_parameters;
    bytes += more_bytes;
  }
};

struct QuantizedView {
  std::string path;
  std::string filter = "*";
  bool tensors = false;
  bool json = false;
};

// inspect for a directory of Parquet V2 Extended.
Exit inspect_quantized(const QuantizedView& view);

// How many tensors, parameters and bytes there are of each width, as JSON and as a table.
nlohmann::ordered_json widths_json(const QuantizedModelInfo& model);
void print_widths(const QuantizedModelInfo& model);

}  // namespace ballast::cli
