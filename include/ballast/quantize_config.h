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
#include <ballast/work.h>

namespace ballast {

enum class QuantizeFormat { kParquet, kMlx };
enum class Profile { kEdge, kLocal, kCloud };
enum class Recipe { kUniform, kMixed2And6, kMixed3And4, kMixed3And6, kMixed4And6 };

std::string_view name(QuantizeFormat format);  // parquet, mlx
std::string_view name(Profile profile);        // edge, local, cloud
std::string_view name(Recipe recipe);          // uniform, mixed_2_6, mixed_3_4, mixed_3_6, mixed_4_6

// The profile that a QuantizeConfig was made from. Assigning one would change none of the values, so only QuantizeConfig::edge(),
// local() and cloud() and make_quantize_config() set it.
class StartingProfile {
 public:
  StartingProfile() = default;
  operator Profile() const { return profile_; }  // NOLINT(google-explicit-constructor): reads as the profile
  bool operator==(const StartingProfile&) const = default;

 private:
  friend struct QuantizeConfig;
  explicit StartingProfile(Profile profile) : profile_(profile) {}
  Profile profile_ = Profile::kLocal;
};

// How a model is to be quantized. Starts as the profile `local`.
struct QuantizeConfig {
  static QuantizeConfig edge();
  static QuantizeConfig local();
  static QuantizeConfig cloud();
  static QuantizeConfig for_profile(Profile profile);

  // From a YAML file, by its path or URI: the file's profile, changed by the file's other fields. See parse_config_fields().
  static Result<QuantizeConfig> from_yaml(const std::string& path);

  StartingProfile deployment_profile;
  unsigned bit_width = 4;     // 2, 3, 4, 5, 6 or 8
  unsigned group_size = 128;  // 32, 64, 128, or 256, which MLX does not have
  QuantizeMethod method = QuantizeMethod::kSearch;
  QuantizeFormat format = QuantizeFormat::kParquet;
  Recipe recipe = Recipe::kUniform;
  std::optional<Modality> modality;  // by default what the model says
  double min_accuracy = 0.85;        // the cosine below which a layer gets more bits, or fail_fast gives up
  bool fail_fast = false;
  bool skip_sensitive_layers = false;
  std::vector<std::string> sensitive_layer_names;             // kept as they are, as globs
  std::vector<std::string> sensitive_layer_patterns;          // the same, as regular expressions that match a part of the name
  std::map<std::string, unsigned> layer_bit_widths;           // by name or glob; 16 keeps the layer as it is
  unsigned num_threads = 0;                                   // 0: one per core
  std::uint64_t max_memory_limit = std::uint64_t{384} << 20;  // bytes; `max_memory_limit_mb` in text, in whole MiB

  // Bytes of all files of weights, to which the bits of each layer are fitted; `target_model_size_mb` in text, in 10^6 bytes.
  std::optional<std::uint64_t> target_model_size;

  // These need statistics of the model's activations.
  std::optional<bool> enable_time_aware;  // by default for text and code
  std::optional<bool> enable_spatial;     // by default for image and audio
  unsigned num_time_groups = 10;          // at most
  unsigned calibration_samples = 128;     // timesteps to use, at most

  bool operator==(const QuantizeConfig&) const = default;
};

// The value of one field: a word or number, a list, or pairs.
using ConfigValue = std::variant<std::string, std::vector<std::string>, std::map<std::string, std::string>>;
// Some of a config's fields, from a file, the environment or the command line, each known to exist.
using ConfigFields = std::map<std::string, ConfigValue, std::less<>>;

// Reads YAML of at most 1 MB whose keys are the fields of QuantizeConfig. An unknown or repeated key is an error, and so is a
// value that its field cannot have; errors say in which line. Anchors, aliases and tags are refused. An optional field may be
// null.
Result<ConfigFields> parse_config_fields(std::string_view yaml);

// The same of a file, by its path or URI, which errors name.
Result<ConfigFields> read_config_fields(const std::string& path, const StopToken& stop = {});

// BALLAST_BIT_WIDTH=4 and so on: every field in capitals. Lists are separated by commas, pairs are NAME=BITS. A variable that is
// empty counts as not set. Values are checked; errors name the variable.
Result<ConfigFields> config_fields_from_environment();

// The profile that the last of `sources` to name one names, changed by all of them in turn: the last one wins. Every field is
// checked.
Result<QuantizeConfig> make_quantize_config(std::span<const ConfigFields> sources);

// What makes no sense is kInvalidArgument, with the field's name and value.
Result<void> validate(const QuantizeConfig& config);

// All fields, as parse_config_fields() reads them.
std::string to_yaml(const QuantizeConfig& config);

}  // namespace ballast
