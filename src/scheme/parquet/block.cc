#include "scheme/parquet/block.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/try.h"

namespace ballast {
namespace {

// Blocks from this size on have a row group of their own.
constexpr std::uint64_t kLoneBytes = std::uint64_t{1} << 20;

parquet::Block usual_block() {
  return {.layer_name = "a.layer.with.a.name.of.usual.length.weight", .dtype = "BF16", .quant_type = "int4", .shape = {1, 1}};
}

}  // namespace

parquet::Block describe_block(const OutputPlan& plan, const TensorBlock& block) {
  const WeightLayout& weight = plan.weights[block.tensor];
  const bool quantized = weight.is_quantized();
  parquet::Block row{.layer_name = weight.name,
                     .dtype = std::string(name(weight.dtype)),
                     .quant_type = quantized ? fmt::format("int{}", weight.bits) : "none",
                     .shape = weight.shape,
                     .block = block.number,
                     .block_count = block.count,
                     .row_offset = block.first_row,
                     .row_count = block.rows,
                     .num_params = quantized ? block.rows * weight.columns : block.rows * weight.columns * 8 / bits(weight.dtype),
                     .bit_width = static_cast<std::uint8_t>(quantized ? weight.bits : bits(weight.dtype))};
  // Rows that end within a byte, or are empty, cannot be counted by bytes.
  if (!quantized && block.count == 1) row.row_count = weight.shape.empty() ? 1 : weight.shape.front();
  if (quantized) {
    row.quant_axis = 1;
    row.group_size = weight.group_size;
  }
  row.is_diffusion_model = plan.is_diffusion;
  if (!plan.modality.empty()) row.modality = plan.modality;
  if (!weight.restore.empty()) {
    row.spatial_quant_json = fmt::format("{{\"equalization_scales\": [{}]}}", fmt::join(weight.restore, ", "));
  }
  return row;
}

std::string boundaries_json(const OutputPlan& plan) {
  if (!plan.time_boundaries) return "null";
  return fmt::format("[{}]", fmt::join(*plan.time_boundaries, ", "));
}

std::string time_aware_json(const OutputPlan& plan, const CodedBlock& block) {
  std::string text = fmt::format("{{\"boundaries\": {}, \"time_bias\": [", boundaries_json(plan));
  for (std::size_t i = 0; i < block.time_bias.size(); i += block.count) {
    text += fmt::format("{}[{}]", i == 0 ? "" : ", ", fmt::join(block.time_bias.subspan(i, block.count), ", "));
  }
  text += "]";
  if (!block.activations.scales.empty()) {
    text += fmt::format(", \"act_scale\": [{}], \"act_zero\": [{}]", fmt::join(block.activations.scales, ", "),
                        fmt::join(block.activations.zeros, ", "));
  }
  return text + "}";
}

Result<ParquetSizes> ParquetSizes::make() {
  const auto library = TRY(parquet::load_library());
  ParquetSizes sizes(*library);
  const std::vector<std::byte> data(kLoneBytes);
  const Row row{.block = usual_block(), .data = data};
  const auto empty = sizes.file({{Row{.block = usual_block()}}});
  const auto one = sizes.file({{row}});
  const auto two = sizes.file({{row, row}});
  if (!empty || !one || !two) return std::unexpected(!empty ? empty.error() : !one ? one.error() : two.error());
  sizes.empty_ = *empty;
  sizes.lone_ = *two - *one - data.size();
  return sizes;
}

Result<std::uint64_t> ParquetSizes::file(std::span<const Row> rows) const {
  std::uint64_t bytes = 0;
  const auto writer = TRY(library_->create_writer(
      [&](std::span<const std::byte> written) -> Result<void> {
        bytes += written.size();
        return {};
      },
      {}));
  for (const Row& row : rows) {
    TRY(writer->append(row.block, row.data, row.scales, row.zero_points));
  }
  TRY(writer->finish());
  return bytes;
}

Result<std::uint64_t> ParquetSizes::more_than_empty(const Row& row) const {
  const auto bytes = TRY(file({{row}}));
  return bytes - std::min(bytes, empty_);
}

Result<std::uint64_t> ParquetSizes::frame(const OutputPlan& plan) const {
  std::vector<Row> small;
  std::uint64_t lone = 0;
  std::uint64_t values = 0;
  for (const TensorBlock& block : plan.blocks) {
    // With 8 bits, the maximum.
    const std::uint64_t bytes = block.rows * plan.weights[block.tensor].columns;
    values += bytes;
    if (bytes < kLoneBytes) {
      small.push_back({.block = describe_block(plan, block)});
      continue;
    }
    lone += lone_;
    if (plan.weights[block.tensor].restore.empty()) continue;
    Row row{.block = usual_block()};
    row.block.spatial_quant_json = describe_block(plan, block).spatial_quant_json;
    const auto columns = TRY(more_than_empty(row));
    lone += columns;
  }
  const auto rest = TRY(file(small));
  // Each file, and each group of small blocks, adds its own overhead.
  constexpr std::uint64_t kFileBytes = std::uint64_t{256} << 20;
  constexpr std::uint64_t kGroupBytes = std::uint64_t{16} << 20;
  return rest + empty_ * (values / kFileBytes) + lone + lone_ * (values / kGroupBytes);
}

Result<std::uint64_t> ParquetSizes::parameters(const OutputPlan& plan, const CodedBlock& block, std::uint64_t rows) const {
  if (rows == 0) return 0;
  Row row{.block = usual_block(),
          .data = {},
          .scales = block.rows.scales.first(rows * block.rows.scales.size() / block.count),
          .zero_points = block.rows.offsets.first(rows * block.rows.offsets.size() / block.count)};
  if (!block.time_bias.empty()) {
    std::vector<float> bias;
    for (std::size_t i = 0; i < block.time_bias.size(); i += block.count) {
      std::ranges::copy(block.time_bias.subspan(i, rows), std::back_inserter(bias));
    }
    row.block.time_aware_quant_json =
        time_aware_json(plan, {.rows = {}, .count = rows, .time_bias = bias, .activations = block.activations});
  }
  return more_than_empty(row);
}

}  // namespace ballast
