#include "scheme/tensors_writer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "base/bytes.h"
#include "base/checked.h"
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
constexpr std::uint64_t kWordBits = 32;

Metadata weights_metadata(const TensorsScheme& scheme, const OutputPlan& plan) {
  Metadata metadata = plan.metadata;
  metadata.insert_or_assign("format", std::string(scheme.metadata_format()));
  return metadata;
}

Result<std::vector<Companion>> companions_of(const TensorsScheme& scheme, const OutputPlan& plan) {
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
  config->text = TRY(scheme.with_section(with_members(text, plan.config_members), plan));
  config->path.clear();
  return companions;
}

Metadata time_aware_metadata(const OutputPlan& plan) {
  if (!plan.time_boundaries) return {};
  return {{"format", std::string(kTimeAware.format)},
          {"boundaries", fmt::format("[{}]", fmt::join(*plan.time_boundaries, ", "))}};
}

class TensorsWriter final : public QuantizedWriter {
 public:
  TensorsWriter(const TensorsScheme& scheme, const OutputPlan& plan) : scheme_(scheme), plan_(plan) {}

  Result<void> open(const std::string& directory, bool sync) {
    const auto companions = TRY(companions_of(scheme_, plan_));
    const std::vector<TensorSpec> specs = declare();
    const std::vector<SideFile> sides = declare_sides(specs.size());
    auto sink = TRY(create_tensor_writer(directory, specs,
                                         {.format = Format::kSafetensors,
                                          .max_shard_bytes = kMostPerShard,
                                          .metadata = weights_metadata(scheme_, plan_),
                                          .sync = sync},
                                         {.companions = companions,
                                          .resume_key = plan_.resume_key,
                                          .side_files = sides,
                                          .index_metadata = fmt::format("\"total_parameters\": {},\n    \"{}\": \"{}\"",
                                                                        plan_.parameter_count(), kKeyMember, plan_.key)}));
    sink_ = std::move(sink);
    return {};
  }

  // Size of all files but the index and copied files.
  Result<std::uint64_t> file_bytes() {
    const std::vector<TensorSpec> specs = declare();
    const auto shards = TRY(safetensors::plan_shards(specs, weights_metadata(scheme_, plan_), kMostPerShard));
    std::uint64_t bytes = 0;
    auto next = specs.begin();
    for (const std::vector<std::size_t>& shard : shards) {
      const auto end = next + static_cast<std::ptrdiff_t>(shard.size());
      const auto layout = TRY(safetensors::make_layout({next, end}, weights_metadata(scheme_, plan_)));
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
    std::size_t next = 0;
    for (const StoredTensor& stored : stored_[at.tensor]) {
      if (place_of(stored, at).bytes == 0) continue;
      const Piece& piece = pieces[next++];
      TRY(write_part(stored, piece, at, coded));
    }
    return write_sides(std::span(pieces).subspan(next), at, coded);
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

  // The tensors of the output: one for each unquantized weight, those of the scheme for each quantized one.
  std::vector<TensorSpec> declare() {
    std::vector<TensorSpec> specs;
    for (const WeightLayout& weight : plan_.weights) {
      first_.push_back(specs.size());
      stored_.push_back(weight.is_quantized() ? scheme_.stored_tensors(weight) : std::vector<StoredTensor>());
      if (!weight.is_quantized()) specs.push_back({.name = weight.name, .dtype = weight.dtype, .shape = weight.shape});
      for (const StoredTensor& stored : stored_.back()) specs.push_back(stored.spec);
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

  // Bytes of one stored tensor.
  struct Extent {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // What a block fills of a tensor. Blocks begin where bands and words do.
  Extent place_of(const StoredTensor& stored, const TensorBlock& block) const {
    const WeightLayout& weight = plan_.weights[block.tensor];
    const auto rows_of = [&](std::uint64_t rows_at_once, std::uint64_t stored_at_once) {
      const std::uint64_t all = ceil_div(weight.rows * stored_at_once, rows_at_once);
      const std::uint64_t row_bytes = stored.bytes() / all;
      const std::uint64_t begin = block.first_row * stored_at_once / rows_at_once;
      const std::uint64_t end = ceil_div((block.first_row + block.rows) * stored_at_once, rows_at_once);
      return Extent{.offset = begin * row_bytes, .bytes = (end - begin) * row_bytes};
    };
    const Extent whole{.offset = 0, .bytes = block.number == 0 ? stored.bytes() : 0};
    switch (stored.part) {
      case StoredPart::kCodes:
      case StoredPart::kBiases: return rows_of(1, 1);
      case StoredPart::kScales: return weight.strategy == Strategy::kTensor ? whole : rows_of(weight.format().band_rows, 1);
      case StoredPart::kZeroPoints: return rows_of(kWordBits, weight.bits);
      case StoredPart::kDivisor:
      case StoredPart::kShape: break;
    }
    return whole;
  }

  std::vector<Piece> pieces_of(const TensorBlock& block) const {
    const std::size_t first = first_[block.tensor];
    if (stored_[block.tensor].empty()) {
      const std::uint64_t row_bytes = plan_.weights[block.tensor].columns;
      return {{.tensor = first, .offset = block.first_row * row_bytes, .bytes = block.rows * row_bytes}};
    }
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < stored_[block.tensor].size(); ++i) {
      const Extent place = place_of(stored_[block.tensor][i], block);
      if (place.bytes > 0) pieces.push_back({.tensor = first + i, .offset = place.offset, .bytes = place.bytes});
    }
    add_side_pieces(block, pieces);
    return pieces;
  }

  Result<void> write_part(const StoredTensor& stored, const Piece& piece, const TensorBlock& block, const CodedBlock& coded) {
    const WeightLayout& weight = plan_.weights[block.tensor];
    switch (stored.part) {
      case StoredPart::kCodes: return write_codes(piece, block, coded.rows.packed);
      case StoredPart::kScales:
        if (weight.strategy == Strategy::kTensor) return write_floats(piece, stored.spec.dtype, {&weight.whole_scale, 1});
        return write_floats(piece, weight.parameters, rows_of_bands(weight, coded.rows.scales));
      case StoredPart::kBiases: return write_floats(piece, stored.spec.dtype, coded.rows.offsets);
      case StoredPart::kZeroPoints: return write_zero_points(piece, weight, block.rows, coded.rows.offsets);
      case StoredPart::kDivisor: return write_floats(piece, stored.spec.dtype, {&weight.whole_scale, 1});
      case StoredPart::kShape: return sink_->write(piece.tensor, piece.offset, std::as_bytes(std::span(weight.shape)));
    }
    return {};
  }

  // The first row of each band has its scales.
  static std::vector<float> rows_of_bands(const WeightLayout& weight, std::span<const float> scales) {
    const RowFormat format = weight.format();
    std::vector<float> stored;
    for (std::size_t row = 0; row * format.groups() < scales.size(); row += format.band_rows) {
      const auto one = scales.subspan(row * format.groups(), format.groups());
      stored.insert(stored.end(), one.begin(), one.end());
    }
    return stored;
  }

  Result<void> write_codes(const Piece& piece, const TensorBlock& block, std::span<const std::byte> packed) {
    if (packed.size() == piece.bytes) return sink_->write(piece.tensor, piece.offset, packed);
    const std::uint64_t stored_row = piece.bytes / block.rows;
    const std::uint64_t row = packed.size() / block.rows;
    std::vector<std::byte> padded(piece.bytes);
    for (std::uint64_t i = 0; i < block.rows; ++i) std::memcpy(&padded[i * stored_row], &packed[i * row], row);
    return sink_->write(piece.tensor, piece.offset, padded);
  }

  // They are whole numbers.
  Result<void> write_zero_points(const Piece& piece, const WeightLayout& weight, std::uint64_t rows,
                                 std::span<const float> zeros) {
    const std::uint64_t groups = weight.format().groups();
    std::vector<std::uint32_t> words(piece.bytes / sizeof(std::uint32_t));
    for (std::uint64_t row = 0; row < rows; ++row) {
      const std::uint64_t bit = row * weight.bits;
      std::uint32_t* const low = &words[bit / kWordBits * groups];
      for (std::uint64_t group = 0; group < groups; ++group) {
        const std::uint64_t shifted = std::uint64_t{static_cast<std::uint32_t>(zeros[row * groups + group])} << bit % kWordBits;
        low[group] |= static_cast<std::uint32_t>(shifted);
        if (shifted >> kWordBits != 0) low[groups + group] |= static_cast<std::uint32_t>(shifted >> kWordBits);
      }
    }
    return sink_->write(piece.tensor, piece.offset, std::as_bytes(std::span(words)));
  }

  // They are already rounded to the dtype.
  Result<void> write_floats(const Piece& piece, DType dtype, std::span<const float> values) {
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

  const TensorsScheme& scheme_;
  const OutputPlan& plan_;
  std::vector<std::vector<StoredTensor>> stored_;  // for each tensor of the model; empty: unquantized
  std::vector<Sides> sides_;                       // for each tensor of the model
  std::vector<std::size_t> first_;                 // for each tensor of the model, its first one of the output
  std::unique_ptr<TensorWriter> sink_;
};

}  // namespace

Result<std::unique_ptr<QuantizedWriter>> create_tensors_writer(const TensorsScheme& scheme, const std::string& directory,
                                                               const OutputPlan& plan, bool sync) {
  auto writer = std::make_unique<TensorsWriter>(scheme, plan);
  TRY(writer->open(directory, sync));
  return writer;
}

Result<std::uint64_t> tensors_file_bytes(const TensorsScheme& scheme, const OutputPlan& plan) {
  return TensorsWriter(scheme, plan).file_bytes();
}

std::string finished_tensors_key(const std::string& directory) {
  const auto text = read_text(join_path(directory, kIndexFile));
  if (!text) return {};
  simdjson::dom::parser parser;
  const auto index = parse_json(parser, *text);
  std::string_view key;
  if (!index || (*index)["metadata"][kKeyMember].get(key) != simdjson::SUCCESS) return {};
  return std::string(key);
}

}  // namespace ballast
