#pragma once

#include <nlohmann/json.hpp>

#include <ballast/quantize.h>

#include "command.h"

namespace ballast::cli {

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
