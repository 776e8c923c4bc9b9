// MLX's quantized SafeTensors: see docs/formats/mlx-quantized.md.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <ballast/quantization_config.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/kernels.h"
#include "format/safetensors/layout.h"
#include "model/locate.h"
#include "scheme/mlx/side_files.h"
#include "jobs/companions.h"
#include "format/tensor_writer.h"
#include "scheme/writer.h"
#include "format/safetensors/shards.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostPerShard = 5'000'000'000;
constexpr std::string_view kKeyMember = "ballast_key";

Metadata weights_metadata() { return {{"format", "mlx"}}; }

// The module that a weight belongs to, which is what MLX calls it by.
std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size()) : tensor;
}

// The bits that most parameters have.
unsigned usual_bits(const QuantizeWork& work) {
  std::map<unsigned, std::uint64_t> parameters;
  for (const LayerPlan& plan : work.plans) {
    if (plan.bits != 0) parameters[plan.bits] += plan.rows * plan.columns;
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  return most == parameters.end() ? work.config.bit_width : most->first;
}

// With an entry of its own for each layer that `needs` one.
std::string write_section(const QuantizeWork& work, unsigned bits, const std::vector<bool>& needs) {
  std::string text = fmt::format(R"({{"group_size": {}, "bits": {}, "mode": "affine")", work.config.group_size, bits);
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    if (!needs[i]) continue;
    text += ", ";
    append_json_string(module_of(work.model.tensors()[i].name), text);
    text += fmt::format(R"(: {{"group_size": {}, "bits": {}}})", work.plans[i].group_size, work.plans[i].bits);
  }
  return text + "}";
}

// Names may be taken for patterns, or for those of other layers. A layer that would be read wrongly for that gets an entry, too.
Result<std::string> quantization_section(const QuantizeWork& work) {
  const unsigned bits = usual_bits(work);
  std::vector<bool> needs;
  for (const LayerPlan& plan : work.plans) needs.push_back(plan.bits != 0 && plan.bits != bits);
  for (const bool again : {true, false}) {
    std::string text = write_section(work, bits, needs);
    const auto config = parse_quantization_section(fmt::format(R"({{"quantization": {}}})", text));
    if (!config) return std::unexpected(config.error());
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < work.plans.size(); ++i) {
      if (work.plans[i].bits == 0) continue;
      const auto found = (*config)->find(work.model.tensors()[i].name);
      if (found && found->bits == work.plans[i].bits && found->group_size == work.plans[i].group_size) continue;
      needs[i] = true;
      wrong = i;
    }
    if (!wrong) return text;
    if (!again) {
      return fail(Errc::kUnsupported, "{}: tensor {}: MLX's config cannot name it beside others; rename it with convert",
                  escape(work.model.path()), quote(work.model.tensors()[*wrong].name));
    }
  }
  return fail(Errc::kUnsupported, "no config says what the layers are");
}

Result<std::vector<Companion>> companions_of(const QuantizeWork& work) {
  std::vector<Companion> companions = work.companions;
  auto config = std::ranges::find(companions, "config.json", &Companion::name);
  std::string text = "{}";
  if (config == companions.end()) {
    companions.push_back({.name = "config.json"});
    config = std::prev(companions.end());
  } else {
    auto read = config->path.empty() ? Result<std::string>(config->text) : read_text(config->path);
    if (!read) return fail_at(escape(config->path), read.error());
    text = std::move(*read);
  }
  const auto section = quantization_section(work);
  if (!section) return std::unexpected(section.error());
  std::vector<SideFileKind> sides;
  bool is_timed = false;
  for (std::size_t i = 0; i < work.plans.size(); ++i) is_timed |= work.time_groups(i) > 0;
  if (is_timed) sides.push_back(kTimeAware);
  if (std::ranges::any_of(work.restore, [](const auto& restore) { return !restore.empty(); })) sides.push_back(kEqualization);
  config->text = with_quantization(text, *section, sides);
  config->path.clear();
  return companions;
}

Metadata time_aware_metadata(const QuantizeWork& work) {
  if (!work.calibration) return {};
  return {{"format", std::string(kTimeAware.format)},
          {"boundaries", fmt::format("[{}]", fmt::join(work.calibration->boundaries(), ", "))}};
}

class MlxOutput final : public QuantizedOutput {
 public:
  explicit MlxOutput(const QuantizeWork& work) : work_(work) {}

  Result<void> open(const std::string& directory, bool sync, bool keep) {
    const auto companions = companions_of(work_);
    if (!companions) return std::unexpected(companions.error());
    const std::vector<TensorSpec> specs = declare();
    const std::vector<SideFile> sides = declare_sides(specs.size());
    auto sink = create_file_sink(
        directory, specs,
        {.format = Format::kSafetensors, .max_shard_bytes = kMostPerShard, .metadata = weights_metadata(), .sync = sync},
        {.companions = *companions,
         .resume_key = keep ? work_.resume_key : "",
         .side_files = sides,
         .index_metadata =
             fmt::format("\"total_parameters\": {},\n    \"{}\": \"{}\"", work_.model.parameter_count(), kKeyMember, work_.key)});
    if (!sink) return std::unexpected(sink.error());
    sink_ = std::move(*sink);
    return {};
  }

  // Of all files but the index and those that are copied along.
  Result<std::uint64_t> file_bytes() {
    const std::vector<TensorSpec> specs = declare();
    const auto shards = plan_shards(specs, weights_metadata(), kMostPerShard);
    if (!shards) return std::unexpected(shards.error());
    std::uint64_t bytes = 0;
    auto next = specs.begin();
    for (const std::vector<std::size_t>& shard : *shards) {
      const auto end = next + static_cast<std::ptrdiff_t>(shard.size());
      const auto layout = safetensors::make_layout({next, end}, weights_metadata());
      if (!layout) return std::unexpected(layout.error());
      bytes += layout->file_size;
      next = end;
    }
    for (const SideFile& side : declare_sides(specs.size())) {
      const auto layout = safetensors::make_layout(side.tensors, side.metadata);
      if (!layout) return std::unexpected(layout.error());
      bytes += layout->file_size;
    }
    return bytes;
  }

  bool has(std::size_t block) override {
    const std::vector<Piece> pieces = pieces_of(work_.blocks[block]);
    const auto placed = [&](const Piece& piece) {
      auto place = *sink_->place(piece.tensor);
      place.offset += piece.offset;
      return place;
    };
    if (!std::ranges::all_of(pieces, [&](const Piece& piece) { return sink_->has(placed(piece), piece.bytes); })) return false;
    for (const Piece& piece : pieces) sink_->skip(placed(piece), piece.bytes);
    return true;
  }

  Result<void> write(std::size_t block, const CodedBlock& coded) override {
    const TensorBlock& at = work_.blocks[block];
    const std::vector<Piece> pieces = pieces_of(at);
    const DType dtype = work_.formats[at.tensor].parameters;
    if (auto written = sink_->write(pieces[0].tensor, pieces[0].offset, coded.rows.packed); !written) return written;
    if (auto written = write_parameters(pieces[1], dtype, coded.rows.scales); !written) return written;
    if (auto written = write_parameters(pieces[2], dtype, coded.rows.offsets); !written) return written;
    return write_sides(std::span(pieces).subspan(3), at, coded);
  }

  Result<void> write_kept(std::size_t block, std::span<const std::byte> bytes) override {
    const Piece piece = pieces_of(work_.blocks[block]).front();
    return sink_->write(piece.tensor, piece.offset, bytes);
  }

  Result<void> commit() override { return sink_->commit(); }

  std::vector<File> files() const override {
    std::vector<File> files;
    for (const FileSink::File& file : sink_->files()) files.push_back({.path = file.path, .bytes = file.bytes});
    return files;
  }

 private:
  // Part of a tensor of the output.
  struct Piece {
    std::size_t tensor;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // The tensors of the output: one for each that is kept, three for each that is quantized.
  std::vector<TensorSpec> declare() {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < work_.plans.size(); ++i) {
      const TensorInfo& tensor = work_.model.tensors()[i];
      const RowFormat& format = work_.formats[i];
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      first_.push_back(specs.size());
      if (!work_.is_quantized(i)) {
        specs.push_back({.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = std::move(shape)});
        continue;
      }
      shape.back() = format.packed_bytes() / sizeof(std::uint32_t);
      specs.push_back({.name = std::string(tensor.name), .dtype = DType::kU32, .shape = shape});
      shape.back() = format.groups();
      for (const std::string_view kind : {"scales", "biases"}) {
        specs.push_back({.name = fmt::format("{}.{}", module_of(tensor.name), kind), .dtype = format.parameters, .shape = shape});
      }
    }
    return specs;
  }

  // What lies beside the weights: for each tensor that has it, one time bias, the scales and zeros of activations, and what
  // restores its columns.
  std::vector<SideFile> declare_sides(std::size_t next) {
    SideFile times{.name = std::string(kTimeAware.file), .tensors = {}, .metadata = time_aware_metadata(work_)};
    SideFile columns{
        .name = std::string(kEqualization.file), .tensors = {}, .metadata = {{"format", std::string(kEqualization.format)}}};
    const auto add = [](SideFile& file, std::string_view module, std::string_view kind, std::vector<std::uint64_t> shape) {
      file.tensors.push_back({.name = fmt::format("{}.{}", module, kind), .dtype = DType::kF32, .shape = std::move(shape)});
    };
    sides_.resize(work_.plans.size());
    for (std::size_t i = 0; i < work_.plans.size(); ++i) {
      const std::size_t groups = work_.time_groups(i);
      if (groups == 0) continue;
      const std::string_view module = module_of(work_.model.tensors()[i].name);
      sides_[i].bias = next + times.tensors.size();
      add(times, module, "time_bias", {groups, work_.plans[i].rows});
      if (!work_.calibration->has_ranges(i)) continue;
      add(times, module, "act_scale", {groups});
      add(times, module, "act_zero", {groups});
    }
    next += times.tensors.size();
    for (std::size_t i = 0; i < work_.plans.size(); ++i) {
      if (work_.restore[i].empty()) continue;
      sides_[i].restore = next + columns.tensors.size();
      add(columns, module_of(work_.model.tensors()[i].name), "equalization_scales", {work_.plans[i].columns});
    }
    std::vector<SideFile> files;
    for (SideFile& file : {std::ref(times), std::ref(columns)}) {
      if (!file.tensors.empty()) files.push_back(std::move(file));
    }
    return files;
  }

  // The pieces that write_sides() fills, in its order.
  void add_side_pieces(const TensorBlock& block, std::vector<Piece>& pieces) const {
    const Sides& sides = sides_[block.tensor];
    const std::uint64_t groups = work_.time_groups(block.tensor);
    const std::uint64_t rows = work_.plans[block.tensor].rows;
    for (std::uint64_t group = 0; group < groups; ++group) {
      pieces.push_back({.tensor = sides.bias,
                        .offset = (group * rows + block.first_row) * sizeof(float),
                        .bytes = block.rows * sizeof(float)});
    }
    if (block.number > 0) return;
    if (groups > 0 && work_.calibration->has_ranges(block.tensor)) {
      pieces.push_back({.tensor = sides.bias + 1, .offset = 0, .bytes = groups * sizeof(float)});
      pieces.push_back({.tensor = sides.bias + 2, .offset = 0, .bytes = groups * sizeof(float)});
    }
    const std::uint64_t columns = work_.restore[block.tensor].size();
    if (columns > 0) pieces.push_back({.tensor = sides.restore, .offset = 0, .bytes = columns * sizeof(float)});
  }

  Result<void> write_sides(std::span<const Piece> pieces, const TensorBlock& block, const CodedBlock& coded) {
    std::vector<std::span<const float>> values;
    for (std::size_t i = 0; i < coded.time_bias.size(); i += coded.count)
      values.push_back(coded.time_bias.subspan(i, coded.count));
    if (block.number == 0) {
      if (!coded.activations.scales.empty()) {
        values.emplace_back(coded.activations.scales);
        values.emplace_back(coded.activations.zeros);
      }
      if (!work_.restore[block.tensor].empty()) values.emplace_back(work_.restore[block.tensor]);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (auto written = sink_->write(pieces[i].tensor, pieces[i].offset, std::as_bytes(values[i])); !written) return written;
    }
    return {};
  }

  std::vector<Piece> pieces_of(const TensorBlock& block) const {
    const RowFormat& format = work_.formats[block.tensor];
    const std::size_t first = first_[block.tensor];
    const auto piece = [&](std::size_t tensor, std::uint64_t row_bytes) {
      return Piece{.tensor = tensor, .offset = block.first_row * row_bytes, .bytes = block.rows * row_bytes};
    };
    if (!work_.is_quantized(block.tensor)) return {piece(first, format.columns)};
    const std::uint64_t parameters = format.groups() * bits(format.parameters) / 8;
    std::vector<Piece> pieces{piece(first, format.packed_bytes()), piece(first + 1, parameters), piece(first + 2, parameters)};
    add_side_pieces(block, pieces);
    return pieces;
  }

  // They are numbers of the dtype already, so that nothing is rounded here.
  Result<void> write_parameters(const Piece& piece, DType dtype, std::span<const float> values) {
    if (dtype == DType::kF32) return sink_->write(piece.tensor, piece.offset, std::as_bytes(values));
    std::vector<std::byte> bytes(piece.bytes);
    from_f32(dtype, std::as_bytes(values).data(), values.size(), bytes.data(), Stores::kOrdinary);
    return sink_->write(piece.tensor, piece.offset, bytes);
  }

  // The numbers of a tensor's first one in each file beside the weights.
  struct Sides {
    std::size_t bias = 0;
    std::size_t restore = 0;
  };

  const QuantizeWork& work_;
  std::vector<Sides> sides_;        // for each tensor of the model
  std::vector<std::size_t> first_;  // for each tensor of the model, its first one of the output
  std::unique_ptr<FileSink> sink_;
};

}  // namespace

Result<std::unique_ptr<QuantizedOutput>> create_mlx_output(const std::string& directory, const QuantizeWork& work, bool sync,
                                                           bool keep) {
  auto output = std::make_unique<MlxOutput>(work);
  if (auto opened = output->open(directory, sync, keep); !opened) return std::unexpected(opened.error());
  return output;
}

Result<std::uint64_t> mlx_bytes(const QuantizeWork& work) { return MlxOutput(work).file_bytes(); }

std::string finished_mlx_key(const std::string& directory) {
  const auto text = read_text(directory + "/model.safetensors.index.json");
  if (!text) return {};
  simdjson::dom::parser parser;
  const auto index = parse_json(parser, *text);
  std::string_view key;
  if (!index || (*index)["metadata"][kKeyMember].get(key) != simdjson::SUCCESS) return {};
  return std::string(key);
}

}  // namespace ballast
