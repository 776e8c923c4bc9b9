#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <napi.h>

#include <ballast/config.h>
#include <ballast/model.h>
#include <ballast/values.h>
#include <ballast/weights.h>

#include "jobs.h"

namespace ballast::node {

struct InspectedTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;  // as stored
  std::string file;
  std::optional<std::uint64_t> begin;  // in the data of the file; empty for Parquet
  std::optional<Storage> storage;      // for Parquet only
};

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;
  std::uint64_t bytes = 0;
};

// The contents of a model as `ballast inspect --json --tensors` reports them.
struct Inspection {
  std::string path;
  std::string format;
  std::vector<ModelFile> files;
  Metadata metadata;
  Modality modality = Modality::kUnknown;
  std::optional<ModelConfig> config;
  std::vector<std::string> warnings;
  std::vector<InspectedTensor> tensors;
  std::vector<Weight> weights;                                // the stored tensors if they cannot be decoded
  std::optional<std::map<std::string, Totals>> quantization;  // by how weights are stored; empty if the model is not quantized
  std::optional<std::vector<double>> time_boundaries;
  // If requested, one per weight or one per tensor.
  std::optional<std::vector<std::optional<TensorStats>>> stats;
  bool has_weight_stats = false;
};

struct InspectOptions {
  bool stats = false;
  unsigned threads = 0;
  OpenOptions open;
};

Result<Inspection> inspect_model(Job& job, const std::string& path, const InspectOptions& options);
Napi::Value inspection_value(Napi::Env env, const Inspection& found);

}  // namespace ballast::node
