#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/model.h>
#include <ballast/sink.h>
#include <ballast/work.h>

namespace ballast {

// Patterns are globs, as in <ballast/glob.h>, and one that matches no tensor is an error.
struct DTypeRule {
  std::string pattern;
  DType dtype;
};

// What each `*` of `from` takes, as little as possible, stands in for the `*` of `to`: "model.*" to "decoder.*".
struct Rename {
  std::string from;
  std::string to;
};

struct ConvertOptions {
  std::optional<DType> dtype;          // for all tensors of its kind: a float for floats, an integer for integers
  std::vector<DTypeRule> dtype_rules;  // for tensors by name, whatever they are; the last one that matches wins
  std::vector<std::string> include;    // none: everything
  std::vector<std::string> exclude;
  std::vector<Rename> renames;  // the first one that matches is taken
  OnLoss on_loss = OnLoss::kRefuse;
  std::optional<Metadata> metadata;  // empty: the model's own
  SinkOptions sink;                  // an error if it has metadata, which belongs in `metadata` above
  bool resume = false;  // if the work breaks off, keep what is done beside `path`, as .incomplete; go on from there if it is
                        // about the same files and options. SafeTensors only.
  WorkOptions work;
};

struct ConvertedFile {
  std::string path;
  std::uint64_t bytes = 0;
};

struct ConvertReport {
  std::vector<ConvertedFile> files;  // of weights
  std::uint64_t tensors = 0;
  std::uint64_t converted = 0;  // tensors whose dtype changed, or that were dequantized
  std::uint64_t data_bytes = 0;
  std::vector<std::string> warnings;
};

// Writes the model to `path`, as create_sink() understands it, in bounded memory. From one directory to another the files beside
// the weights go along, and the dtype in config.json is kept true. `path` may be where the model is read from.
// A model of stored codes is copied only if they keep their meaning, see open_to_convert().
Result<ConvertReport> convert_model(const Model& model, const std::string& path, const ConvertOptions& options = {});

// Opens a model for convert_model() with the same `path` and options. Quantized weights are decoded, to the dtype asked for or
// their original ones, unless they can stay as they are: those of MLX in a directory of SafeTensors, without new dtypes. A model
// that no scheme decodes is opened as it is stored.
Result<Model> open_to_convert(const std::string& model, const std::string& path, const ConvertOptions& options,
                              const OpenOptions& open = {});

}  // namespace ballast
