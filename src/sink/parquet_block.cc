#include "sink/parquet_block.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace ballast {
namespace {

// Blocks from this size on have a row group of their own.
constexpr std::uint64_t kLoneBytes = std::uint64_t{1} << 20;

}  // namespace

parquet::Block describe_block(const QuantizeWork& work, const TensorBlock& block) {
  const TensorInfo& tensor = work.model.tensors()[block.tensor];
  const RowFormat& format = work.formats[block.tensor];
  const bool quantized = work.is_quantized(block.tensor);
  parquet::Block row{.layer_name = std::string(tensor.name),
                     .dtype = std::string(name(tensor.dtype)),
                     .quant_type = quantized ? fmt::format("int{}", format.bits) : "none",
                     .shape = {tensor.shape.begin(), tensor.shape.end()},
                     .block = block.number,
                     .block_count = block.count,
                     .row_offset = block.first_row,
                     .row_count = block.rows,
                     .num_params = quantized ? block.rows * format.columns : block.rows * format.columns * 8 / bits(tensor.dtype),
                     .bit_width = static_cast<std::uint8_t>(quantized ? format.bits : bits(tensor.dtype))};
  // Rows that end within a byte, or have none, are not counted by their bytes.
  if (!quantized && block.count == 1) row.row_count = tensor.shape.empty() ? 1 : tensor.shape.front();
  if (quantized) {
    row.quant_axis = 1;
    row.group_size = format.group_size;
  }
  row.is_diffusion_model = work.is_diffusion;
  if (work.modality != Modality::kUnknown) row.modality = std::string(name(work.modality));
  return row;
}

Result<ParquetSizes> ParquetSizes::make() {
  const auto library = parquet::load_library();
  if (!library) return std::unexpected(library.error());
  ParquetSizes sizes(**library);
  const std::vector<std::byte> data(kLoneBytes);
  const Row row{.block = {.layer_name = "a.layer.with.a.name.of.usual.length.weight",
                          .dtype = "BF16",
                          .quant_type = "int4",
                          .shape = {1, 1}},
                .data = data};
  const auto one = sizes.file({{row}});
  const auto two = sizes.file({{row, row}});
  if (!one || !two) return std::unexpected(one ? two.error() : one.error());
  sizes.lone_ = *two - *one - data.size();
  return sizes;
}

Result<std::uint64_t> ParquetSizes::file(std::span<const Row> rows) const {
  std::uint64_t bytes = 0;
  const auto writer = library_->create_writer(
      [&](std::span<const std::byte> written) -> Result<void> {
        bytes += written.size();
        return {};
      },
      {});
  if (!writer) return std::unexpected(writer.error());
  for (const Row& row : rows) {
    if (auto appended = (*writer)->append(row.block, row.data, row.scales, row.zero_points); !appended) {
      return std::unexpected(appended.error());
    }
  }
  if (auto finished = (*writer)->finish(); !finished) return std::unexpected(finished.error());
  return bytes;
}

Result<std::uint64_t> ParquetSizes::frame(const QuantizeWork& work) const {
  std::vector<Row> small;
  std::uint64_t lone = 0;
  std::uint64_t values = 0;
  for (const TensorBlock& block : work.blocks) {
    // With 8 bits, which is the most.
    const std::uint64_t bytes = block.rows * work.formats[block.tensor].columns;
    values += bytes;
    if (bytes >= kLoneBytes) {
      ++lone;
    } else {
      small.push_back({.block = describe_block(work, block)});
    }
  }
  const auto rest = file(small);
  if (!rest) return rest;
  // Files, and groups of small blocks, each of which has a frame of its own.
  constexpr std::uint64_t kFileBytes = std::uint64_t{256} << 20;
  constexpr std::uint64_t kGroupBytes = std::uint64_t{16} << 20;
  constexpr std::uint64_t kMetadata = 4096;  // beside the parts
  return kMetadata + *rest * (1 + values / kFileBytes) + lone_ * (lone + values / kGroupBytes);
}

Result<double> ParquetSizes::parameters(const CodedRows& sample) const {
  if (sample.scales.empty()) return 0.0;
  const parquet::Block block{.layer_name = "a", .dtype = "BF16", .quant_type = "int4", .shape = {1, 1}};
  const auto with = [&](std::size_t groups) {
    return file(
        {{Row{.block = block, .data = {}, .scales = sample.scales.first(groups), .zero_points = sample.offsets.first(groups)}}});
  };
  const auto all = with(sample.scales.size());
  const auto one = with(1);  // the rest is of the page
  if (!all || !one) return std::unexpected(all ? one.error() : all.error());
  return static_cast<double>(*all - *one) / static_cast<double>(std::max<std::size_t>(sample.scales.size() - 1, 1));
}

}  // namespace ballast
