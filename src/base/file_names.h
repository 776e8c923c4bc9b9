#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ballast {

// The well-known files of model directories. This is the only such table: locating, copying, downloading and probing servers all
// use it.
enum class FileRole : std::uint8_t {
  kIndex,         // maps each tensor to its shard
  kWeights,       // a whole model in one file
  kSideWeights,   // extra tensors that a quantization scheme writes beside the weights
  kConfig,        // the model's config.json
  kQuantization,  // describes quantized weights; must not stay beside weights that are not quantized
  kCompanion,     // tokenizer and similar files that do not depend on the format of the weights
};

struct KnownFile {
  std::string_view name;
  FileRole role;
};

inline constexpr std::string_view kConfigFile = "config.json";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kModulesFile = "modules.json";       // of sentence-transformers
inline constexpr std::string_view kPipelineFile = "model_index.json";  // names the components of a diffusers pipeline
inline constexpr std::string_view kQuantizationConfigFile = "quantization_config.json";
inline constexpr std::string_view kParquetMetadataFile = "metadata.json";
inline constexpr std::string_view kTimeAwareFile = "timeaware.safetensors";
inline constexpr std::string_view kEqualizationFile = "equalization.safetensors";
inline constexpr std::string_view kHfQuantConfigFile = "hf_quant_config.json";   // ModelOpt
inline constexpr std::string_view kQuantizeConfigFile = "quantize_config.json";  // GPTQ
inline constexpr std::string_view kQuantConfigFile = "quant_config.json";        // AWQ
inline constexpr std::string_view kMistralParamsFile = "params.json";

inline constexpr std::string_view kModelStem = "model";
inline constexpr std::string_view kConsolidatedStem = "consolidated";  // of Mistral, often beside the same weights as model
inline constexpr std::array<std::string_view, 2> kAdapterStems{"adapter_model", "pytorch_lora_weights"};  // PEFT, diffusers

// The stems under which other libraries look for weights.
inline constexpr std::array<std::string_view, 6> kUsualStems{
    kModelStem, "weights", kAdapterStems[0], kConsolidatedStem, "diffusion_pytorch_model", kAdapterStems[1]};

// Names of a model in one file. The first one that exists is used.
inline constexpr std::array<std::string_view, 4> kSingleFiles{"model.safetensors", "weights.safetensors", "weights.mlx",
                                                              "diffusion_pytorch_model.safetensors"};

inline constexpr std::array kKnownFiles{
    KnownFile{.name = "added_tokens.json", .role = FileRole::kCompanion},
    KnownFile{.name = "chat_template.jinja", .role = FileRole::kCompanion},
    KnownFile{.name = "chat_template.json", .role = FileRole::kCompanion},
    KnownFile{.name = kConfigFile, .role = FileRole::kConfig},
    KnownFile{.name = kSingleFiles[3], .role = FileRole::kWeights},
    KnownFile{.name = "diffusion_pytorch_model.safetensors.index.json", .role = FileRole::kIndex},
    KnownFile{.name = kEqualizationFile, .role = FileRole::kSideWeights},
    KnownFile{.name = "generation_config.json", .role = FileRole::kCompanion},
    KnownFile{.name = kHfQuantConfigFile, .role = FileRole::kQuantization},
    KnownFile{.name = "merges.txt", .role = FileRole::kCompanion},
    KnownFile{.name = kParquetMetadataFile, .role = FileRole::kCompanion},  // other programs use this name too
    KnownFile{.name = kSingleFiles[0], .role = FileRole::kWeights},
    KnownFile{.name = kIndexFile, .role = FileRole::kIndex},
    KnownFile{.name = kPipelineFile, .role = FileRole::kCompanion},
    KnownFile{.name = "preprocessor_config.json", .role = FileRole::kCompanion},
    KnownFile{.name = "processor_config.json", .role = FileRole::kCompanion},
    KnownFile{.name = kQuantConfigFile, .role = FileRole::kQuantization},
    KnownFile{.name = kQuantizationConfigFile, .role = FileRole::kQuantization},
    KnownFile{.name = kQuantizeConfigFile, .role = FileRole::kQuantization},
    KnownFile{.name = "scheduler_config.json", .role = FileRole::kCompanion},
    KnownFile{.name = "sentencepiece.bpe.model", .role = FileRole::kCompanion},
    KnownFile{.name = "special_tokens_map.json", .role = FileRole::kCompanion},
    KnownFile{.name = "spiece.model", .role = FileRole::kCompanion},
    KnownFile{.name = kTimeAwareFile, .role = FileRole::kSideWeights},
    KnownFile{.name = "tokenizer.json", .role = FileRole::kCompanion},
    KnownFile{.name = "tokenizer.model", .role = FileRole::kCompanion},
    KnownFile{.name = "tokenizer_config.json", .role = FileRole::kCompanion},
    KnownFile{.name = "vocab.json", .role = FileRole::kCompanion},
    KnownFile{.name = kSingleFiles[2], .role = FileRole::kWeights},
    KnownFile{.name = kSingleFiles[1], .role = FileRole::kWeights},
};

// The role of a well-known file; empty for any other name.
std::optional<FileRole> file_role(std::string_view name);

inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";
inline constexpr std::string_view kMlxJsonSuffix = ".mlx";
inline constexpr std::string_view kParquetSuffix = ".parquet";
inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

// Whether the name has the suffix of a weights file of any format, including formats that Ballast does not read. Some
// directories hold the same model in several formats.
bool is_weights_name(std::string_view name);

// Whether the last part of a URI looks like a file of a model. If not, it is taken for a folder.
bool has_file_suffix(std::string_view name);

// Whether an output of this name is one file, not a directory.
bool is_single_file(std::string_view path);

// The parts of model-00001-of-00003.safetensors, with any number of digits. Older versions of diffusers put a variant behind the
// numbers: model-00001-of-00003.fp16.safetensors.
struct ShardName {
  std::string_view before;  // model-
  std::uint32_t number;
  std::size_t digits;
  std::string_view after;  // -of-00003, or -of-00003.fp16
  std::uint32_t count;
};
std::optional<ShardName> parse_shard_name(std::string_view name);

// The part of a weights file's name that its shards and its index share: adapter_model for adapter_model.safetensors and for
// adapter_model-00001-of-00002.safetensors; consolidated for consolidated.01.safetensors. "model" for a name that is not of
// SafeTensors. A variant is not part of it.
std::string_view stem_of(std::string_view name);

// consolidated.01.safetensors: a shard of Mistral or Meta whose name has no count. Returns its number.
std::optional<std::uint32_t> parse_consolidated_name(std::string_view name);

// A weight file or an index of which a directory may contain several variants: model.safetensors and model.fp16.safetensors,
// diffusion_pytorch_model.fp16-00001-of-00002.safetensors, model.safetensors.index.fp16.json.
struct VariantName {
  enum class Kind : std::uint8_t { kSingle, kShard, kIndex };
  std::string_view stem;     // model or diffusion_pytorch_model
  std::string_view variant;  // fp16; empty for plain weights
  Kind kind;
};
std::optional<VariantName> parse_variant_name(std::string_view name);

// model-00001-of-00003.parquet and the like.
bool is_parquet_part(std::string_view name);

// Whether a reader of the directory would take this file for the model or a part of it.
bool is_model_name(std::string_view name);

}  // namespace ballast
