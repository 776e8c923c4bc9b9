#pragma once

#include <nlohmann/json.hpp>

#include <ballast/weights.h>

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

// inspect for weights that are not tensors of a file: Parquet V2 Extended.
Exit inspect_quantized(const QuantizedView& view, const Weights& model);

// If the weights cannot be decoded, the stored tensors, with the reason.
Result<Weights> open_to_inspect(const std::string& path, const OpenOptions& options, std::string& reason);

// One weight, as in `weights` of --json, and one stored tensor, as in `tensors`.
nlohmann::ordered_json weight_json(const Weight& weight);
nlohmann::ordered_json tensor_json(const Model& model, const TensorInfo& tensor);

// Tensors, parameters and bytes by storage, such as "int4 of 64", as JSON and as a table.
nlohmann::ordered_json widths_json(const Weights& model);
Exit print_widths(const Weights& model);

}  // namespace ballast::cli
