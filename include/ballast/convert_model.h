#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/lora.h>
#include <ballast/metadata.h>
#include <ballast/model.h>
#include <ballast/pipeline.h>
#include <ballast/sink.h>
#include <ballast/work.h>

namespace ballast {

// Sets the dtype of the tensors whose names match `pattern`, a glob as in <ballast/glob.h>. A pattern that matches no tensor is
// an error.
struct DTypeRule {
  std::string pattern;
  DType dtype;
};

// Renames tensors by glob. Each `*` in `to` is replaced by the text that the corresponding `*` in `from` matched (the shortest
// match): from "model.*" to "decoder.*".
struct Rename {
  std::string from;
  std::string to;
};

struct ConvertOptions {
  std::optional<DType> dtype;          // a float dtype applies to all float tensors, an integer dtype to all integer tensors
  std::vector<DTypeRule> dtype_rules;  // apply to any matching tensor and override `dtype`; the last match wins
  std::vector<std::string> include;    // globs of tensor names to write; empty: all tensors
  std::vector<std::string> exclude;    // globs of tensor names to leave out; applied after `include`
  std::vector<Rename> renames;         // the first match wins
  std::vector<Lora> loras;             // open_to_convert() merges them; patterns are of the model's names
  OnLoss on_loss = OnLoss::kRefuse;
  std::optional<Metadata> metadata;  // empty: keep the model's metadata
  SinkOptions sink;                  // `sink.metadata` must be empty; use `metadata` above
  // Keep partial output beside `path`, as .incomplete, if the conversion is interrupted, and resume from it if the source files
  // and the options are the same. SafeTensors only.
  bool resume = false;
  bool force = false;  // write into a directory with files that do not belong to the model; they stay
  WorkOptions work;
};

struct ConvertedFile {
  std::string path;
  std::uint64_t bytes = 0;
};

struct ConvertReport {
  std::vector<ConvertedFile> files;  // weight files only
  std::uint64_t tensors = 0;
  std::uint64_t converted = 0;  // tensors whose dtype changed, or that were dequantized or merged
  std::uint64_t data_bytes = 0;
  std::vector<std::string> not_copied;      // files of the model directory that are not in the output, sorted
  std::vector<ComponentReport> components;  // of a pipeline
  std::vector<std::string> notes;           // worth knowing, and harmless
  std::vector<std::string> warnings;
};

// Writes the model to `path` in bounded memory; create_sink() describes which paths are accepted. When a model directory is
// written to a directory, the files and folders beside the weights are copied too, and the dtype in config.json is updated; the
// weight files keep their stem, such as adapter_model. A directory with other files is refused without `force`. `path` may be the
// model's own path. A model that stores quantized codes is copied only if the output can still be decoded; see open_to_convert().
Result<ConvertReport> convert_model(const Model& model, const std::string& path, const ConvertOptions& options = {});

// Opens a model for convert_model() with the same `path` and options. Quantized weights are decoded, to the requested dtype or to
// their original one. Only MLX weights that are written to a SafeTensors directory without a change of dtype stay quantized. A
// model that no scheme can decode is opened as it is stored. Adapters are merged, as open_merged() does it.
Result<Model> open_to_convert(const std::string& model, const std::string& path, const ConvertOptions& options,
                              const OpenOptions& open = {});

// Converts all components of a diffusers pipeline; see list_components(). The directory has the same structure, and appears when
// all of it is complete: components without weights and the files of the root are copied. Options that name tensors are refused.
// With `resume`, finished components are kept as well.
Result<ConvertReport> convert_pipeline(const std::string& pipeline, const std::string& directory,
                                       const ConvertOptions& options = {}, const OpenOptions& open = {});

// Converts what a path stands for: a model, as open_to_convert() opens it, or a pipeline.
Result<ConvertReport> convert_path(const std::string& source, const std::string& path, const ConvertOptions& options = {},
                                   const OpenOptions& open = {});

}  // namespace ballast
