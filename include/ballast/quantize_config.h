#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/quantize_method.h>
#include <ballast/quantize_type.h>
#include <ballast/work.h>

namespace ballast {

enum class QuantizeFormat { kParquet, kMlx, kCompressedTensors, kHfFp8 };
enum class Profile { kEdge, kLocal, kCloud };
enum class Recipe { kUniform, kMixed2And6, kMixed3And4, kMixed3And6, kMixed4And6 };

std::string_view name(QuantizeFormat format);  // parquet, mlx, compressed-tensors, hf-fp8
std::string_view name(Profile profile);        // edge, local, cloud
std::string_view name(Recipe recipe);          // uniform, mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6

// The profile that a QuantizeConfig was created from. It cannot be assigned, because that would not change the other fields. Only
// QuantizeConfig::edge(), local(), cloud() and make_quantize_config() set it.
class StartingProfile {
 public:
  StartingProfile() = default;
  operator Profile() const { return profile_; }  // NOLINT(google-explicit-constructor): usable as a Profile
  bool operator==(const StartingProfile&) const = default;

 private:
  friend struct QuantizeConfig;
  explicit StartingProfile(Profile profile) : profile_(profile) {}
  Profile profile_ = Profile::kLocal;
};

// Settings of quantize_model(). The defaults are those of the profile `local`.
struct QuantizeConfig {
  static QuantizeConfig edge();
  static QuantizeConfig local();
  static QuantizeConfig cloud();
  static QuantizeConfig for_profile(Profile profile);

  // Reads a YAML file, given as a path or URI. Starts from the file's profile and applies the other fields. See
  // parse_config_fields().
  static Result<QuantizeConfig> from_yaml(const std::string& path);

  StartingProfile deployment_profile;
  unsigned bit_width = 4;     // 2, 3, 4, 5, 6 or 8; also 7 in compressed-tensors
  unsigned group_size = 128;  // 32, 64, 128 or, in Parquet, 256
  // All but kInt fix bits and group size, which must then be those of the type, or those of the profile, which do not count. They
  // have neither hqq, nor a recipe, nor a target size. Parquet has none of them, MLX has no kFp8, and kHfFp8 is kFp8.
  QuantizeType type = QuantizeType::kInt;
  // kCompressedTensors only. Default: kGroup for integers, kChannel for kFp8; other types have none.
  std::optional<Strategy> strategy;
  bool asymmetric = false;  // kCompressedTensors with kInt only: store zero points
  QuantizeMethod method = QuantizeMethod::kAuto;
  QuantizeFormat format = QuantizeFormat::kParquet;
  Recipe recipe = Recipe::kUniform;
  std::optional<Modality> modality;  // default: detected from the model
  double min_accuracy = 0.85;        // cosine similarity below which a layer gets more bits, or fails with fail_fast
  bool fail_fast = false;
  bool skip_sensitive_layers = false;
  std::vector<std::string> sensitive_layer_names;             // globs of tensors to leave unquantized
  std::vector<std::string> sensitive_layer_patterns;          // the same as regular expressions that match part of the name
  std::map<std::string, unsigned> layer_bit_widths;           // by name or glob; 16 leaves the layer unquantized
  unsigned num_threads = 0;                                   // 0: one per core
  std::uint64_t max_memory_limit = std::uint64_t{384} << 20;  // bytes; in YAML `max_memory_limit_mb`, in whole MiB

  // Maximum total size of the weight files in bytes; the bits of each layer are chosen to fit. In YAML `target_model_size_mb`, in
  // units of 10^6 bytes.
  std::optional<std::uint64_t> target_model_size;

  // The fields below need activation statistics (QuantizeOptions::calibration).
  std::optional<bool> enable_time_aware;  // default: true for text and code
  std::optional<bool> enable_spatial;     // default: true for image and audio
  unsigned num_time_groups = 10;          // maximum
  unsigned calibration_samples = 128;     // maximum number of timesteps to use

  bool operator==(const QuantizeConfig&) const = default;
};

// The value of one field: a scalar, a list or a map.
using ConfigValue = std::variant<std::string, std::vector<std::string>, std::map<std::string, std::string>>;
// Fields of a config from a file, the environment or the command line. Every key is a valid field name.
using ConfigFields = std::map<std::string, ConfigValue, std::less<>>;

// Parses YAML of at most 1 MB whose keys are the fields of QuantizeConfig. An unknown key, a repeated key or an invalid value is
// an error that names the line. Anchors, aliases and tags are rejected. An optional field may be null.
Result<ConfigFields> parse_config_fields(std::string_view yaml);

// Parses a YAML file, given as a path or URI. Errors name the file.
Result<ConfigFields> read_config_fields(const std::string& path, const StopToken& stop = {});

// Reads the environment variables BALLAST_BIT_WIDTH and so on, one per field, in capitals. List items are separated by commas,
// map entries are NAME=BITS. An empty variable counts as not set. Values are checked; errors name the variable.
Result<ConfigFields> config_fields_from_environment();

// Starts from the profile named by the last of `sources` that names one, then applies the fields of all sources in order; later
// sources win. Checks every field.
Result<QuantizeConfig> make_quantize_config(std::span<const ConfigFields> sources);

// Returns Errc::kInvalidArgument, with the name and value of the field, for a value out of range or a contradiction.
Result<void> validate(const QuantizeConfig& config);

// Writes all fields in the format that parse_config_fields() reads.
std::string to_yaml(const QuantizeConfig& config);

}  // namespace ballast
