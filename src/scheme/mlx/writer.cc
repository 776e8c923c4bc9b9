#include "scheme/mlx/writer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include <ballast/mlx_quantization.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/kernels.h"
#include "format/safetensors/layout.h"
#include "format/safetensors/shards.h"
#include "model/sink.h"
#include "scheme/mlx/section.h"
#include "scheme/mlx/side_files.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostPerShard = 5'000'000'000;
constexpr std::string_view kKeyMember = "ballast_key";

Metadata weights_metadata(const OutputPlan& plan) {
  Metadata metadata = plan.metadata;
  metadata.insert_or_assign("format", "mlx");
  return metadata;
}

Result<std::vector<Companion>> companions_of(const OutputPlan& plan) {
  std::vector<Companion> companions = plan.companions;
  auto config = std::ranges::find(companions, kConfigFile, &Companion::name);
  std::string text = "{}";
  if (config == companions.end()) {
    companions.push_back({.name = std::string(kConfigFile)});
    config = std::prev(companions.end());
  } else {
    auto read = config->path.empty() ? Result<std::string>(config->text) : read_text(config->path);
    if (!read) return fail_at(escape(config->path), read.error());
    text = std::move(*read);
  }
  const auto section = TRY(quantization_section(plan));
  std::vector<SideFileKind> sides;
  if (std::ranges::any_of(plan.weights, [](const WeightLayout& weight) { return weight.time_groups > 0; }))
    sides.push_back(kTimeAware);
  if (std::ranges::any_of(plan.weights, [](const WeightLayout& weight) { return !weight.restore.empty(); }))
    sides.push_back(kEqualization);
  config->text = with_quantization(with_members(text, plan.config_members), section, sides);
  config->path.clear();
  return companions;
}

Metadata time_aware_metadata(const OutputPlan& plan) {
  if (!plan.time_boundaries) return {};
  return {{"format", std::string(kTimeAware.format)},
          {"boundaries", fmt::format("[{}]", fmt::join(*plan.time_boundaries, ", "))}};
}

class MlxWriter final : public QuantizedWriter {
 public:
  explicit MlxWriter(const OutputPlan& plan) : plan_(plan) {}

  Result<void> open(const std::string& directory, bool sync) {
    const auto companions = TRY(companions_of(plan_));
    const std::vector<TensorSpec> specs = declare();
    const std::vector<SideFile> sides = declare_sides(specs.size());
    auto sink = TRY(create_tensor_writer(
        directory, specs,
        {.format = Format::kSafetensors, .max_shard_bytes = kMostPerShard, .metadata = weights_metadata(plan_), .sync = sync},
        {.companions = companions,
         .resume_key = plan_.resume_key,
         .side_files = sides,
         .index_metadata =
             fmt::format("\"total_parameters\": {},\n    \"{}\": \"{}\"", plan_.parameter_count(), kKeyMember, plan_.key)}));
    sink_ = std::move(sink);
    return {};
  }

  // Size of all files but the index and copied files.
  Result<std::uint64_t> file_bytes() {
    const std::vector<TensorSpec> specs = declare();
    const auto shards = TRY(safetensors::plan_shards(specs, weights_metadata(plan_), kMostPerShard));
    std::uint64_t bytes = 0;
    auto next = specs.begin();
    for (const std::vector<std::size_t>& shard : shards) {
      const auto end = next + static_cast<std::ptrdiff_t>(shard.size());
      const auto layout = TRY(safetensors::make_layout({next, end}, weights_metadata(plan_)));
      bytes += layout.file_size;
      next = end;
    }
    for (const SideFile& side : declare_sides(specs.size())) {
      const auto layout = TRY(safetensors::make_layout(side.tensors, side.metadata));
      bytes += layout.file_size;
    }
    return bytes;
  }

  bool has(std::size_t block) override {
    const std::vector<Piece> pieces = pieces_of(plan_.blocks[block]);
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
    const TensorBlock& at = plan_.blocks[block];
    const std::vector<Piece> pieces = pieces_of(at);
    const DType dtype = plan_.weights[at.tensor].parameters;
    TRY(sink_->write(pieces[0].tensor, pieces[0].offset, coded.rows.packed));
    TRY(write_parameters(pieces[1], dtype, coded.rows.scales));
    const bool has_biases = plan_.weights[at.tensor].affine != Affine::kScale;
    if (has_biases) TRY(write_parameters(pieces[2], dtype, coded.rows.offsets));
    return write_sides(std::span(pieces).subspan(has_biases ? 3 : 2), at, coded);
  }

  Result<void> write_unquantized(std::size_t block, std::span<const std::byte> bytes) override {
    const Piece piece = pieces_of(plan_.blocks[block]).front();
    return sink_->write(piece.tensor, piece.offset, bytes);
  }

  Result<void> commit() override { return sink_->commit(); }

  std::vector<File> files() const override {
    std::vector<File> files;
    for (const TensorWriter::File& file : sink_->files()) files.push_back({.path = file.path, .bytes = file.bytes});
    return files;
  }

 private:
  // Part of a tensor of the output.
  struct Piece {
    std::size_t tensor;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // The tensors of the output: one for each unquantized weight, three for each quantized one, or two if it has no biases.
  std::vector<TensorSpec> declare() {
    std::vector<TensorSpec> specs;
    for (const WeightLayout& weight : plan_.weights) {
      const RowFormat format = weight.format();
      std::vector<std::uint64_t> shape = weight.shape;
      first_.push_back(specs.size());
      if (!weight.is_quantized()) {
        specs.push_back({.name = weight.name, .dtype = weight.dtype, .shape = std::move(shape)});
        continue;
      }
      shape.back() = format.packed_bytes() / sizeof(std::uint32_t);
      specs.push_back({.name = weight.name, .dtype = DType::kU32, .shape = shape});
      shape.back() = format.groups();
      const bool has_biases = format.affine != Affine::kScale;
      const auto add = [&](std::string_view kind) {
        specs.push_back({.name = fmt::format("{}.{}", module_of(weight.name), kind),
                         .dtype = has_biases ? format.parameters : DType::kU8,
                         .shape = shape});
      };
      add("scales");
      if (has_biases) add("biases");
    }
    return specs;
  }

  // The contents of the side files: for each tensor that has them, the time bias, the scales and zeros of activations, and the
  // column factors.
  std::vector<SideFile> declare_sides(std::size_t next) {
    SideFile times{.name = std::string(kTimeAware.file), .tensors = {}, .metadata = time_aware_metadata(plan_)};
    SideFile columns{
        .name = std::string(kEqualization.file), .tensors = {}, .metadata = {{"format", std::string(kEqualization.format)}}};
    const auto add = [](SideFile& file, std::string_view module, std::string_view kind, std::vector<std::uint64_t> shape) {
      file.tensors.push_back({.name = fmt::format("{}.{}", module, kind), .dtype = DType::kF32, .shape = std::move(shape)});
    };
    sides_.resize(plan_.weights.size());
    for (std::size_t i = 0; i < plan_.weights.size(); ++i) {
      const std::size_t groups = plan_.weights[i].time_groups;
      if (groups == 0) continue;
      const std::string_view module = module_of(plan_.weights[i].name);
      sides_[i].bias = next + times.tensors.size();
      add(times, module, "time_bias", {groups, plan_.weights[i].rows});
      if (!plan_.weights[i].has_activation_scales) continue;
      add(times, module, "act_scale", {groups});
      add(times, module, "act_zero", {groups});
    }
    next += times.tensors.size();
    for (std::size_t i = 0; i < plan_.weights.size(); ++i) {
      if (plan_.weights[i].restore.empty()) continue;
      sides_[i].restore = next + columns.tensors.size();
      add(columns, module_of(plan_.weights[i].name), "equalization_scales", {plan_.weights[i].columns});
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
    const std::uint64_t groups = plan_.weights[block.tensor].time_groups;
    const std::uint64_t rows = plan_.weights[block.tensor].rows;
    for (std::uint64_t group = 0; group < groups; ++group) {
      pieces.push_back({.tensor = sides.bias,
                        .offset = (group * rows + block.first_row) * sizeof(float),
                        .bytes = block.rows * sizeof(float)});
    }
    if (block.number > 0) return;
    if (groups > 0 && plan_.weights[block.tensor].has_activation_scales) {
      pieces.push_back({.tensor = sides.bias + 1, .offset = 0, .bytes = groups * sizeof(float)});
      pieces.push_back({.tensor = sides.bias + 2, .offset = 0, .bytes = groups * sizeof(float)});
    }
    const std::uint64_t columns = plan_.weights[block.tensor].restore.size();
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
      if (!plan_.weights[block.tensor].restore.empty()) values.emplace_back(plan_.weights[block.tensor].restore);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      TRY(sink_->write(pieces[i].tensor, pieces[i].offset, std::as_bytes(values[i])));
    }
    return {};
  }

  std::vector<Piece> pieces_of(const TensorBlock& block) const {
    const RowFormat format = plan_.weights[block.tensor].format();
    const std::size_t first = first_[block.tensor];
    const auto piece = [&](std::size_t tensor, std::uint64_t row_bytes) {
      return Piece{.tensor = tensor, .offset = block.first_row * row_bytes, .bytes = block.rows * row_bytes};
    };
    if (!plan_.weights[block.tensor].is_quantized()) return {piece(first, format.columns)};
    const std::uint64_t parameters = format.groups() * bits(format.parameters) / 8;
    std::vector<Piece> pieces{piece(first, format.packed_bytes()), piece(first + 1, parameters)};
    if (format.affine != Affine::kScale) pieces.push_back(piece(first + 2, parameters));
    add_side_pieces(block, pieces);
    return pieces;
  }

  // They are already rounded to the dtype.
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

  const OutputPlan& plan_;
  std::vector<Sides> sides_;        // for each tensor of the model
  std::vector<std::size_t> first_;  // for each tensor of the model, its first one of the output
  std::unique_ptr<TensorWriter> sink_;
};

}  // namespace

Result<std::unique_ptr<QuantizedWriter>> create_mlx_writer(const std::string& directory, const OutputPlan& plan, bool sync) {
  auto writer = std::make_unique<MlxWriter>(plan);
  TRY(writer->open(directory, sync));
  return writer;
}

Result<std::uint64_t> mlx_file_bytes(const OutputPlan& plan) { return MlxWriter(plan).file_bytes(); }

std::string finished_mlx_key(const std::string& directory) {
  const auto text = read_text(join_path(directory, kIndexFile));
  if (!text) return {};
  simdjson::dom::parser parser;
  const auto index = parse_json(parser, *text);
  std::string_view key;
  if (!index || (*index)["metadata"][kKeyMember].get(key) != simdjson::SUCCESS) return {};
  return std::string(key);
}

}  // namespace ballast
