#include "quantize.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <ballast/quantize.h>
#include <ballast/quantized_weights.h>
#include <ballast/text.h>
#include <ballast/tokens.h>
#include <ballast/weights.h>

#include "bytes.h"
#include "errors.h"
#include "long_work.h"
#include "model.h"
#include "values.h"

namespace ballast::python {
namespace {

namespace nb = nanobind;

using Fields = std::map<std::string, ConfigValue>;

QuantizeConfig config_of(const std::vector<Fields>& sources) {
  std::vector<ConfigFields> all;
  for (const Fields& fields : sources) all.emplace_back(fields.begin(), fields.end());
  return take(make_quantize_config(all));
}

nb::object modality_of(Modality modality) { return modality == Modality::kUnknown ? nb::none() : nb::cast(name(modality)); }

nb::dict describe(const QuantizeConfig& config) {
  nb::dict made;
  made["deployment_profile"] = name(config.deployment_profile);
  made["bit_width"] = config.bit_width;
  made["group_size"] = config.group_size;
  made["type"] = name(config.type);
  made["strategy"] = config.strategy ? nb::cast(name(*config.strategy)) : nb::none();
  made["asymmetric"] = config.asymmetric;
  made["method"] = name(config.method);
  made["format"] = name(config.format);
  made["recipe"] = name(config.recipe);
  made["modality"] = config.modality ? modality_of(*config.modality) : nb::none();
  made["min_accuracy"] = config.min_accuracy;
  made["fail_fast"] = config.fail_fast;
  made["skip_sensitive_layers"] = config.skip_sensitive_layers;
  made["sensitive_layer_names"] = config.sensitive_layer_names;
  made["sensitive_layer_patterns"] = config.sensitive_layer_patterns;
  made["layer_bit_widths"] = config.layer_bit_widths;
  made["num_threads"] = config.num_threads;
  made["max_memory_limit_mb"] = config.max_memory_limit >> 20;
  made["target_model_size_mb"] =
      config.target_model_size ? nb::cast(static_cast<double>(*config.target_model_size) / 1e6) : nb::none();
  made["enable_time_aware"] = config.enable_time_aware;
  made["enable_spatial"] = config.enable_spatial;
  made["num_time_groups"] = config.num_time_groups;
  made["calibration_samples"] = config.calibration_samples;
  return made;
}

nb::dict describe(const LayerReport& layer) {
  nb::dict made;
  made["name"] = layer.name;
  made["dtype"] = name(layer.dtype);
  made["shape"] = nb::tuple(nb::cast(layer.shape));
  made["bits"] = layer.bits;
  made["planned_bits"] = layer.planned_bits;
  made["group_size"] = layer.group_size;
  made["parameters"] = layer.parameters;
  made["bytes"] = layer.bytes;
  made["method"] = layer.method;
  made["equalized"] = layer.equalized;
  made["cosine_similarity"] = layer.quality.cosine_similarity;
  made["relative_rmse"] = layer.quality.relative_rmse;
  made["sqnr_db"] = layer.quality.sqnr_db;
  made["max_error"] = layer.quality.max_error;
  made["output_error"] = layer.quality.output_error;
  made["expected_error"] = layer.expected_error;
  return made;
}

nb::object describe(const std::optional<CalibrationReport>& calibration) {
  if (!calibration) return nb::none();
  nb::dict made;
  made["covered"] = calibration->covered;
  made["uncovered"] = calibration->uncovered;
  made["timesteps"] = calibration->timesteps;
  made["recorded_timesteps"] = calibration->recorded_timesteps;
  made["time_groups"] = calibration->time_groups;
  made["boundaries"] = calibration->boundaries;
  return made;
}

nb::object describe(const std::optional<SizeFitReport>& fit) {
  if (!fit) return nb::none();
  nb::dict made;
  made["expected_bytes"] = fit->expected_bytes;
  made["expected_error"] = fit->expected_error;
  made["error"] = fit->error;
  made["error_of"] = fit->of_outputs ? "outputs" : "weights";
  made["uniform_bits"] = fit->uniform_bits;
  made["uniform_bytes"] = fit->uniform_bytes;
  made["uniform_error"] = fit->uniform_error;
  return made;
}

nb::dict describe(const QuantizeReport& report) {
  nb::dict made;
  nb::list layers;
  for (const LayerReport& layer : report.layers) layers.append(describe(layer));
  made["layers"] = layers;
  made["unquantized"] = report.unquantized;
  nb::list files;
  for (const std::string& file : report.files) files.append(path_text(file));
  made["files"] = files;
  made["source_bytes"] = report.source_bytes;
  made["bytes"] = report.bytes;
  made["compression_ratio"] = report.compression_ratio();
  made["bits_per_weight"] = report.bits_per_weight;
  made["bits_per_weight_total"] = report.bits_per_weight_total;
  made["cosine_similarity"] = report.quality.cosine_similarity;
  made["relative_rmse"] = report.quality.relative_rmse;
  made["sqnr_db"] = report.quality.sqnr_db;
  made["max_error"] = report.quality.max_error;
  made["modality"] = modality_of(report.modality);
  made["calibration"] = describe(report.calibration);
  made["size_fit"] = describe(report.size_fit);
  made["passed"] = report.passed;
  made["up_to_date"] = report.up_to_date;
  made["not_copied"] = path_texts(report.not_copied);
  made["notes"] = report.notes;
  made["warnings"] = report.warnings;
  made["left_out"] = report.left_out;
  made["components"] = components_of(report.components);
  return made;
}

// `source` is an open model or a path.
nb::dict quantize(const nb::object& source, const FsPath& directory, const std::vector<Fields>& config,
                  const std::optional<FsPath>& calibration, const TokenWindows* calibration_tokens, const Loras& loras, bool sync,
                  bool resume, bool force, const std::string& component, const std::string& variant, nb::object progress) {
  LongWork work(std::move(progress));
  const QuantizeConfig settings = config_of(config);
  std::optional<TokenWindows> tokens;
  if (calibration_tokens != nullptr) tokens = spread_windows(*calibration_tokens, settings.calibration_samples);
  const QuantizeOptions options{.config = settings,
                                .calibration = calibration ? calibration->get() : "",
                                .calibration_tokens = tokens ? &*tokens : nullptr,
                                .loras = loras_of(loras),
                                .sync = sync,
                                .resume = resume,
                                .force = force,
                                .work = work.options()};
  if (nb::isinstance<OpenModel>(source)) {
    const auto model = nb::cast<const OpenModel&>(source).shared();
    return describe(work.run([&] { return quantize_model(*model, directory.get(), options); }));
  }
  const auto from = nb::cast<FsPath>(source);
  const OpenOptions open{.component = component, .variant = variant, .stop = options.work.stop};
  return describe(work.run([&] { return quantize_path(from.get(), directory.get(), options, open); }));
}

// `original` is an open model or a path.
nb::dict validate(const nb::object& original, const FsPath& quantized, const Loras& loras, double min_accuracy, unsigned threads,
                  const std::string& component, const std::string& variant, nb::object progress) {
  LongWork work(std::move(progress));
  const ValidateOptions options{.loras = loras_of(loras), .min_accuracy = min_accuracy, .work = work.options(threads)};
  if (nb::isinstance<OpenModel>(original)) {
    const auto model = nb::cast<const OpenModel&>(original).shared();
    return describe(work.run([&] { return validate_model(*model, quantized.get(), options); }));
  }
  const auto from = nb::cast<FsPath>(original);
  const OpenOptions open{.component = component, .variant = variant, .stop = options.work.stop};
  return describe(work.run([&] { return validate_path(from.get(), quantized.get(), options, open); }));
}

// The logical weights of a model.
nb::object describe_model(const FsPath& path, const std::string& component, const std::string& variant) {
  const OpenOptions options{.component = component, .variant = variant, .stop = was_interrupted};
  const ballast::Weights weights = take(released([&] { return ballast::Weights::open(path.get(), options); }));
  const auto boundaries = take(weights.time_boundaries());
  nb::list tensors;
  for (const Weight& weight : weights.weights()) {
    nb::dict made;
    made["name"] = weight.name;
    made["dtype"] = name(weight.dtype);
    made["shape"] = nb::tuple(nb::cast(weight.shape));
    made["scheme"] = weight.storage.scheme;
    made["mode"] = weight.storage.mode.empty() ? nb::none() : nb::cast(weight.storage.mode);
    made["stored_as"] = weight.is_quantized() ? storage_name(weight.storage) : "kept";
    made["bits"] = weight.storage.bits;
    made["group_size"] = weight.storage.group_size;
    made["equalized"] = weight.storage.equalized;
    made["tensors"] = nb::cast(weight.tensors);
    made["bytes"] = weight.bytes;
    made["file"] = path_text(weight.file);
    tensors.append(made);
  }
  nb::dict made;
  made["format"] = weights.scheme();
  made["tensors"] = tensors;
  made["time_boundaries"] = boundaries;
  made["modality"] = weights.modality() == Modality::kUnknown ? nb::none() : nb::cast(name(weights.modality()));
  made["config"] = weights.config() ? nb::cast(weights.config()->json) : nb::none();
  nb::list files;
  for (const ModelFile& file : weights.files()) files.append(nb::make_tuple(path_text(file.path), file.size));
  made["files"] = files;
  return made;
}

// Quantized weights as they are stored, loaded into memory.
class Weights {
 public:
  explicit Weights(QuantizedWeights weights) : weights_(std::make_shared<const QuantizedWeights>(std::move(weights))) {}

  nb::list names() const {
    nb::list names;
    for (const QuantizedWeight& weight : weights_->weights()) names.append(weight.name);
    return names;
  }

  nb::list others() const {
    nb::list all;
    for (const TensorView& tensor : weights_->others()) all.append(nb::make_tuple(tensor.name, array(tensor)));
    return all;
  }

  nb::object find(std::string_view name) const {
    const QuantizedWeight* const weight = weights_->find(name);
    if (weight == nullptr) return nb::none();
    nb::dict made;
    made["name"] = weight->name;
    made["scheme"] = weight->scheme;
    made["shape"] = tuple_of(weight->shape);
    made["dtype"] = ballast::name(weight->dtype);
    made["bits"] = weight->bits;
    made["group_size"] = weight->group_size;
    made["mode"] = ballast::name(weight->mode);
    made["packed"] = array(weight->packed);
    made["scales"] = array(weight->scales);
    made["biases"] = array_or_none(weight->biases);
    made["zero_points"] = array_or_none(weight->zero_points);
    made["restore"] = std::vector<float>(weight->restore.begin(), weight->restore.end());
    return made;
  }

  // Why there is no weight of this name, and which one is similar.
  std::string describe_missing(std::string_view name) const {
    const auto found = weights_->dequantize(name, DType::kF32);
    return found ? std::string() : found.error().message;
  }

  nb::tuple dequantize(std::string_view name, std::string_view dtype) const {
    const DType to = dtype_of(dtype);
    Tensor tensor = take(released([&] { return weights_->dequantize(name, to); }));
    const nb::tuple shape = tuple_of(tensor.shape());
    return nb::make_tuple(dtype, shape, Bytes::of(std::move(tensor)));
  }

 private:
  nb::tuple array(const TensorView& tensor) const {
    return nb::make_tuple(ballast::name(tensor.dtype), tuple_of(tensor.shape),
                          Bytes{.owner = weights_, .bytes = tensor.bytes, .is_writable = false});
  }

  nb::object array_or_none(const std::optional<TensorView>& tensor) const {
    return tensor ? nb::object(array(*tensor)) : nb::none();
  }

  std::shared_ptr<const QuantizedWeights> weights_;
};

}  // namespace

void bind_quantize(nb::module_& module) {
  module.def("make_config", [](const std::vector<Fields>& sources) { return describe(config_of(sources)); });
  module.def("parse_config", [](std::string_view yaml) { return take(parse_config_fields(yaml)); });
  module.def("read_config",
             [](const FsPath& path) { return take(released([&] { return read_config_fields(path.get(), was_interrupted); })); });
  module.def("config_from_environment", [] { return take(config_fields_from_environment()); });
  module.def("config_yaml", [](const std::vector<Fields>& sources) { return to_yaml(config_of(sources)); });
  module.def("quantize", &quantize, nb::arg("source"), nb::arg("directory"), nb::kw_only(), nb::arg("config"),
             nb::arg("calibration").none(), nb::arg("calibration_tokens").none(), nb::arg("lora"), nb::arg("sync"),
             nb::arg("resume"), nb::arg("force"), nb::arg("component"), nb::arg("variant"), nb::arg("progress").none());
  module.def("validate", &validate, nb::arg("original"), nb::arg("quantized"), nb::kw_only(), nb::arg("lora"),
             nb::arg("min_accuracy"), nb::arg("threads"), nb::arg("component"), nb::arg("variant"), nb::arg("progress").none());
  module.def("describe_weights", &describe_model, nb::arg("path"), nb::arg("component"), nb::arg("variant"));
  module.def("without_secrets", [](const FsPath& path) { return path_text(without_secrets(path.get())); });
  nb::class_<Weights>(module, "Weights")
      .def("names", &Weights::names)
      .def("others", &Weights::others)
      .def("find", &Weights::find)
      .def("describe_missing", &Weights::describe_missing)
      .def("dequantize", &Weights::dequantize);
  module.def("load_quantized_weights", [](const FsPath& directory) {
    return Weights(take(released([&] { return load_quantized_weights(directory.get()); })));
  });
}

}  // namespace ballast::python
