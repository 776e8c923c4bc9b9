#include <ballast/verify.h>

#include <algorithm>
#include <set>

#include <ballast/architecture.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/verify/rest.h"
#include "jobs/verify/verify_pipeline.h"
#include "model/locate.h"
#include "model/pipeline.h"
#include "model/read_config.h"
#include "model/shards.h"
#include "model/state.h"
#include "scheme/declared.h"
#include "scheme/layer_reader.h"
#include "scheme/mlx/config.h"
#include "scheme/reader.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

// One verification.
class Verifier {
 public:
  explicit Verifier(const VerifyOptions& options) : options_(options) {}

  Result<VerifyReport> run(const std::string& path, Place place) {
    auto location = locate(std::move(place), read_options(options_.open));
    if (!location) {
      if (location.error().code != Errc::kCorrupt) return std::unexpected(location.error());
      begin("layout");
      defect(location.error().message);
      return std::move(report_);
    }
    std::ranges::move(location->warnings, std::back_inserter(report_.warnings));
    TRY(check_headers(*location));
    JoinedTables joined = check_against_index(*location);
    auto config = TRY(check_config(*location));
    total_ = (options_.values ? data_bytes_ : 0) + (options_.sha256 ? report_.bytes : 0);
    std::vector<Model> models = make_models(path, std::move(joined));
    if (options_.values) {
      TRY(check_all_values(models));
    }
    if (options_.sha256) {
      TRY(hash_files());
    }
    const bool is_whole = models.size() == 1 && report_.ok();
    if (location->folder) TRY(add_rest(*location->folder, {.weights = location->files, .folders = {}}, options_.open, report_));
    if (is_whole) {
      if (config) ModelAccess::set_folder(models.front(), std::move(*location), std::move(*config));
      TRY(check_quantization(std::move(models.front())));
    }
    return std::move(report_);
  }

 private:
  void begin(std::string check) { report_.checks.push_back(std::move(check)); }
  void defect(std::string message) { report_.defects.push_back({.check = report_.checks.back(), .message = std::move(message)}); }

  Result<void> check_headers(const Location& location) {
    begin("header");
    auto shards = open_shards(location.files, location.index_path, options_.open);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string& file = location.files[i];
      auto& shard = shards[i];
      if (shard) {
        add_file(file, shard->file_size, shard->header.tensors.size());
        data_bytes_ += data_bytes(*shard);
        shards_.push_back(std::move(*shard));
        continue;
      }
      Error& error = shard.error();
      const bool is_missing = error.code == Errc::kNotFound && location.index;
      if (is_missing) {
        report_.defects.push_back({.check = "index", .message = std::move(error.message)});
      } else if (error.code == Errc::kCorrupt || error.code == Errc::kUnsupported) {
        add_file(file, size_of(file), 0);
        defect(std::move(error.message));
      } else {
        return std::unexpected(std::move(error));
      }
    }
    return {};
  }

  void add_file(const std::string& path, std::uint64_t size, std::uint64_t tensors) {
    report_.files.push_back({.path = without_secrets(path), .size = size, .tensors = tensors});
    paths_.push_back(path);
    report_.bytes += size;
    report_.tensors += tensors;
  }

  JoinedTables check_against_index(const Location& location) {
    if (location.files.size() < 2 && !location.index) return {};
    begin(location.index ? "index" : "shards");
    ShardReport shards = check_shards(shards_, location.index ? &*location.index : nullptr, location.index_path);
    for (Error& error : shards.contradictions) defect(std::move(error.message));
    std::ranges::move(shards.warnings, std::back_inserter(report_.warnings));
    return std::move(shards.joined);
  }

  // All files as one model, or each as its own if there are defects: one broken file must not hide the contents of others.
  std::vector<Model> make_models(const std::string& path, JoinedTables joined) {
    std::vector<Model> models;
    if (report_.ok()) {
      models.push_back(ModelAccess::join(path, std::move(shards_), std::move(joined)));
      return models;
    }
    for (Shard& shard : shards_) {
      const std::string file = shard.path;
      std::vector<Shard> alone;
      alone.push_back(std::move(shard));
      models.push_back(ModelAccess::join(file, std::move(alone)));
    }
    return models;
  }

  // The config, if there is one that can be read.
  Result<std::optional<ModelConfig>> check_config(const Location& location) {
    if (!location.folder) return std::nullopt;
    const auto config = read_config(*location.folder);
    if (config && !*config) return std::nullopt;
    begin("config");
    if (!config) {
      if (config.error().code != Errc::kCorrupt) return std::unexpected(config.error());
      defect(config.error().message);
      return std::nullopt;
    }
    config_place_ = shown(join_path(location.folder->path(), kConfigFile));
    const auto may_be_quantized = [](const Shard& shard) { return std::ranges::any_of(shard.header.tensors, holds_codes); };
    awaits_weights_ = (*config)->quantized || std::ranges::any_of(shards_, may_be_quantized);
    if (awaits_weights_) return *config;  // compared when the weights are known
    std::vector<TensorInfo> tensors;
    for (const Shard& shard : shards_) tensors.insert(tensors.end(), shard.header.tensors.begin(), shard.header.tensors.end());
    check_tensors_against(**config, tensors, config_place_);
    return *config;
  }

  void check_tensors_against(const ModelConfig& config, std::span<const TensorInfo> tensors, const std::string& place) {
    const auto compared = check_architecture(config, tensors);
    if (!compared) return defect(fmt::format("{}: {}", place, compared.error().message));
    if (!*compared) {
      report_.skipped.push_back(fmt::format("architecture: unknown for model_type {}", quote(config.model_type)));
      return;
    }
    begin("architecture");
    const ArchitectureReport& report = **compared;
    for (const std::string& name : report.missing) defect(fmt::format("tensor {} is missing", quote(name)));
    for (const std::string& name : report.unexpected) {
      defect(fmt::format("tensor {} does not belong to {}", quote(name), escape(config.model_type)));
    }
    for (const ShapeMismatch& shape : report.misshaped) {
      defect(fmt::format("tensor {} has shape {}, the config implies {}", quote(shape.name), to_string(shape.found),
                         to_string(shape.expected)));
    }
  }

  // File by file: text in one file that cannot be parsed must not hide defects in the others.
  Result<void> check_all_values(std::span<const Model> models) {
    if (models.empty()) {
      report_.skipped.emplace_back("values: no file can be read");
      return {};
    }
    begin("values");
    for (const Model& model : models) {
      const Parts parts = find_parts(model);
      for (std::uint32_t file = 0; file < model.files().size(); ++file) {
        TRY(check_values_of(model, file, parts));
      }
    }
    return {};
  }

  // Tensors of quantized weights whose values do not have the limits of other weights.
  struct Parts {
    std::set<const TensorInfo*> raw;     // elements are no values, whatever the dtype: each holds several codes
    std::set<const TensorInfo*> scales;  // and other parameters, of which few may all be the same
  };

  static Parts find_parts(const Model& model) {
    Parts parts;
    const auto found = find_layers(model);
    if (!found || !*found) return parts;
    for (const Layer& layer : (*found)->layers) {
      const TensorInfo* const codes = layer.parts.front();
      if (layer.storage.bits < bits(codes->dtype)) parts.raw.insert(codes);
      parts.scales.insert(layer.parts.begin() + 1, layer.parts.end());
    }
    return parts;
  }

  Result<void> check_values_of(const Model& model, std::uint32_t file, const Parts& parts) {
    std::vector<const TensorInfo*> tensors;
    std::vector<std::string_view> names;
    std::uint64_t bytes = 0;
    for (const TensorInfo& tensor : model.tensors()) {
      if (tensor.file != file) continue;
      if (parts.raw.contains(&tensor)) {
        if (!advance(tensor.bytes(), model.files()[file].path)) return fail(Errc::kCancelled, "cancelled");
        continue;
      }
      tensors.push_back(&tensor);
      names.push_back(tensor.name);
      bytes += tensor.bytes();
    }
    const std::string& path = model.files()[file].path;
    const auto stats = compute_stats(model, names, {.histogram = false, .work = work_from_here()});
    if (!stats && stats.error().code == Errc::kCorrupt) {
      defect(stats.error().message);
    } else if (!stats) {
      return std::unexpected(stats.error());
    }
    for (std::size_t i = 0; stats && i < names.size(); ++i) {
      if (!(*stats)[i]) continue;
      ValueLimits limits = options_.limits;
      if (parts.scales.contains(tensors[i])) {
        limits = {.allow_nan = limits.allow_nan,
                  .allow_infinity = limits.allow_infinity,
                  .allow_constant = true,
                  .max_zero_share = 1,
                  .min_l2_norm = 0};
      }
      for (const std::string& message : check_values(*tensors[i], *(*stats)[i], limits)) {
        defect(fmt::format("{}: tensor {}: {}", shown(path), quote(names[i]), message));
      }
    }
    if (!advance(bytes, path)) return fail(Errc::kCancelled, "cancelled");
    return {};
  }

  // Checks that the tensors match the config's bits and group sizes.
  Result<void> check_quantization(Model model) {
    // MLX's own section wins over one that the original model left in the config.
    const auto mlx = mlx_quantization_of(model);
    const std::string contradiction = mlx && *mlx ? "" : describe_contradiction(declared_or_none(model));
    const auto weights = Weights::from_model(std::move(model));
    if (!weights && weights.error().code == Errc::kUnsupported) {
      report_.skipped.push_back(fmt::format("quantization: {}", weights.error().message));
      if (awaits_weights_) report_.skipped.emplace_back("architecture: the weights cannot be decoded");
      return {};
    }
    if (weights && weights->scheme() == kPlain) {
      if (awaits_weights_) check_architecture_of(reader_of(*weights));
      return {};
    }
    begin("quantization");
    if (!contradiction.empty()) defect(contradiction);
    const auto checked = weights ? check_weights(reader_of(*weights)) : std::unexpected(weights.error());
    if (checked) return {};
    if (checked.error().code != Errc::kCorrupt) return std::unexpected(checked.error());
    defect(checked.error().message);
    return {};
  }

  // A section that cannot be read is reported with the weights.
  static std::vector<Declared> declared_or_none(const Model& model) {
    return find_declared(model).value_or(std::vector<Declared>());
  }

  Result<void> check_weights(const WeightsReader& reader) {
    TRY(reader.read_time_aware());
    for (const std::string& message : TRY(reader.check_values())) defect(fmt::format("{}: {}", escape(reader.path()), message));
    check_architecture_of(reader);
    return {};
  }

  void check_architecture_of(const WeightsReader& reader) {
    if (!reader.config()) return;
    ModelConfig config = *reader.config();
    config.quantized = false;
    std::vector<TensorInfo> tensors;
    for (const Weight& weight : reader.weights()) {
      tensors.push_back({.name = weight.name, .shape = weight.shape, .dtype = weight.dtype});
    }
    check_tensors_against(config, tensors, config_place_);
  }

  Result<void> hash_files() {
    begin("sha256");
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      VerifiedFile& file = report_.files[i];
      const auto source = open_path(paths_[i], {.access = Access::kPread, .stop = options_.open.stop});
      if (!source) return fail_at(escape(file.path), source.error());
      auto hash = sha256(**source, [&](std::uint64_t bytes) { return advance(bytes, file.path); });
      if (!hash) return fail_at(escape(file.path), hash.error());
      file.sha256 = std::move(*hash);
    }
    return {};
  }

  static std::uint64_t data_bytes(const Shard& shard) {
    std::uint64_t bytes = 0;
    for (const TensorInfo& tensor : shard.header.tensors) bytes += tensor.bytes();
    return bytes;
  }

  bool advance(std::uint64_t bytes, const std::string& what) {
    done_ += bytes;
    return report(options_.work, done_, total_, what);
  }

  // For a part of this work: progress continues from the work done so far.
  WorkOptions work_from_here() const {
    WorkOptions work = options_.work;
    if (!work.progress) return work;
    work.progress = [this, before = done_](std::uint64_t done, std::uint64_t, std::string_view what) {
      return options_.work.progress(before + done, total_, what);
    };
    return work;
  }

  const VerifyOptions& options_;
  VerifyReport report_;
  std::vector<std::string> paths_;  // of the files in it
  bool awaits_weights_ = false;     // the architecture is checked when the weights are known
  std::string config_place_;        // of the config, for messages
  std::vector<Shard> shards_;       // those that could be opened
  std::uint64_t data_bytes_ = 0;    // of their tensors
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

// Parquet metadata has the checksums of the files.
Result<VerifyReport> verify_parquet(const std::string& path, Folder folder, const VerifyOptions& options) {
  VerifyReport report{.files = {}, .checks = {"quantization"}, .skipped = {}, .defects = {}, .warnings = {}};
  if (options.values) report.skipped.emplace_back("values: quantized in Parquet; dequantize the model and verify the result");
  const auto defect = [&](std::string message) {
    report.defects.push_back({.check = report.checks.back(), .message = std::move(message)});
  };
  const Folder whole = folder;
  const auto opened = open_parquet_reader(path, std::move(folder), options.open);
  const bool is_defect = !opened && (opened.error().code == Errc::kCorrupt || opened.error().code == Errc::kNotFound);
  if (!opened && !is_defect) return std::unexpected(opened.error());
  if (!opened) {
    defect(opened.error().message);
    return report;
  }
  const WeightsReader& reader = **opened;
  for (const ModelFile& file : reader.files()) {
    report.files.push_back({.path = without_secrets(file.path), .size = file.size});
    report.bytes += file.size;
  }
  report.tensors = reader.weights().size();
  if (const auto times = reader.read_time_aware(); !times) defect(times.error().message);
  std::vector<std::string> stored;
  for (const ModelFile& file : reader.files()) stored.push_back(file.path);
  TRY(add_rest(whole, {.weights = stored, .folders = {}}, options.open, report));
  report.checks.emplace_back("sha256");
  const auto sums = TRY(reader.hash_files(options.work));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].agrees()) defect(sums[i].difference());
    if (options.sha256) report.files[i].sha256 = sums[i].found;
  }
  return report;
}

}  // namespace

Result<VerifyReport> verify_model(const std::string& path, const VerifyOptions& options) {
  Place place = TRY(find_place(path, options.open));
  if (is_parquet_model(place)) return verify_parquet(path, std::move(*place.folder), options);
  if (place.folder && TRY(place.folder->has(kPipelineFile))) {
    const auto entries = TRY(read_pipeline(*place.folder));
    if (!entries.empty()) return verify_pipeline(place.path, entries, options);
  }
  return Verifier(options).run(path, std::move(place));
}

}  // namespace ballast
