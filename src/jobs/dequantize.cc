#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include <ballast/quantize.h>

#include "base/block_loop.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/nonfinite.h"
#include "format/safetensors/layout.h"
#include "jobs/companions.h"
#include "jobs/pipeline/dequantize_pipeline.h"
#include "jobs/pipeline/write_pipeline.h"
#include "model/identity.h"
#include "model/sink.h"
#include "output/occupied.h"
#include "scheme/decoded_source.h"
#include "scheme/mlx/arrange.h"
#include "scheme/parquet/metadata.h"
#include "scheme/reader.h"
#include "source/uri.h"

namespace ballast {
namespace {

struct WeightBlock {
  std::size_t tensor;
  std::uint64_t first_row;
  std::uint64_t rows;
};

bool is_wide_float(DType dtype) { return info(dtype).kind == NumberKind::kFloat && bits(dtype) >= 16; }

std::vector<TensorSpec> declare(const WeightsReader& reader, std::optional<DType> dtype) {
  std::vector<TensorSpec> specs;
  for (const Weight& weight : reader.weights()) {
    specs.push_back({.name = weight.name,
                     .dtype = weight.is_quantized() ? dtype.value_or(decoded_dtype(weight)) : weight.dtype,
                     .shape = weight.shape});
  }
  return specs;
}

// The files beside the weights, with the quantization removed from the config.
Result<Companions> companions_of(const WeightsReader& source, std::span<const std::string> stored,
                                 std::span<const TensorSpec> specs) {
  if (source.folder() == nullptr) return {};
  auto companions = TRY(find_companions(*source.folder(), stored, main_dtype(specs)));
  TRY(drop_quantization(companions));
  return companions;
}

class Dequantization {
 public:
  Dequantization(const WeightsReader& source, std::span<const TensorSpec> specs, TensorWriter& sink,
                 const DequantizeOptions& options)
      : source_(source), specs_(specs), sink_(sink), options_(options) {}

  Result<void> run() {
    const bool any_order = specs_.empty() || sink_.place(0).has_value();
    std::uint64_t largest = 1;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const std::uint64_t bytes = cut(i);
      if (bytes > memory_limit(options_.work)) {
        return fail(Errc::kUnsupported, "{}: tensor {}: a block takes {} bytes, the memory limit is {}; raise memory_limit",
                    escape(source_.path()), quote(specs_[i].name), bytes, memory_limit(options_.work));
      }
      largest = std::max(largest, bytes);
    }
    nonfinite_.resize(specs_.size());
    // Each thread has the stored bytes, the decoded values and the output.
    const unsigned threads = threads_within(memory_limit(options_.work) / 2, largest, options_.work.threads);
    source_.expect_all();
    std::vector<Bytes> buffers(threads);  // fresh memory for each block would take as long as writing it
    const auto move_block = [&](unsigned worker, std::size_t i) {
      if (!buffers[worker]) buffers[worker] = Bytes(allocate_bytes(most_bytes_));
      return move(blocks_[i], buffers[worker].get());
    };
    return BlockLoop{.work = options_.work, .total = total_, .threads = any_order ? threads : 1}.run(
        blocks_.size(), move_block, [&](std::size_t i) {
          const WeightBlock& block = blocks_[i];
          return BlockDone{.bytes = block.rows * row_bytes(block.tensor), .what = specs_[block.tensor].name};
        });
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (nonfinite_[i] == 0) continue;
      found.push_back(fmt::format("tensor {}: {} of {} values are NaN or infinite as {}", quote(specs_[i].name), nonfinite_[i],
                                  checked_elements(specs_[i].shape).value_or(0), name(specs_[i].dtype)));
    }
    return found;
  }

 private:
  std::uint64_t row_bytes(std::size_t tensor) const {
    const Weight& from = source_.weights()[tensor];
    return from.is_quantized() ? source_.format(from).columns * bits(specs_[tensor].dtype) / 8 : 1;
  }

  // A block of decoded rows stays in a core's cache until it is written, but blocks of Parquet are decoded whole.
  std::uint64_t rows_at_once(std::size_t tensor) const {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
    const Weight& from = source_.weights()[tensor];
    if (!from.is_quantized()) return kPiece;
    const std::uint64_t most = rows_of_block(source_.format(from).columns);
    return source_.scheme() == "parquet" ? most : std::clamp<std::uint64_t>(kPiece / row_bytes(tensor), 1, most);
  }

  // Returns the memory that a block of the tensor takes.
  std::uint64_t cut(std::size_t tensor) {
    const Weight& from = source_.weights()[tensor];
    const std::uint64_t rows = from.is_quantized() ? from.rows : from.bytes;
    const std::uint64_t most = rows_at_once(tensor);
    for (std::uint64_t row = 0; row < rows; row += most) {
      blocks_.push_back({.tensor = tensor, .first_row = row, .rows = std::min(most, rows - row)});
      const std::uint64_t bytes = blocks_.back().rows * row_bytes(tensor);
      most_bytes_ = std::max(most_bytes_, bytes);
      total_ += bytes;
    }
    return std::min(most, rows) * (row_bytes(tensor) + (from.is_quantized() ? source_.format(from).columns * 6 : 1));
  }

  Result<void> move(const WeightBlock& block, std::byte* buffer) {
    const Weight& from = source_.weights()[block.tensor];
    const std::span bytes(buffer, block.rows * row_bytes(block.tensor));
    TRY(from.is_quantized() ? source_.read_rows(from, block.first_row, block.rows, specs_[block.tensor].dtype, bytes)
                            : source_.read_bytes(from, block.first_row, bytes));
    if (from.is_quantized()) {
      const std::uint64_t count = count_nonfinite(specs_[block.tensor].dtype, bytes);
      const std::scoped_lock lock(mutex_);
      nonfinite_[block.tensor] += count;
    }
    return sink_.write(block.tensor, block.first_row * row_bytes(block.tensor), bytes);
  }

  const WeightsReader& source_;
  std::span<const TensorSpec> specs_;
  TensorWriter& sink_;
  const DequantizeOptions& options_;
  std::vector<WeightBlock> blocks_;
  std::vector<std::uint64_t> nonfinite_;  // values of each tensor
  std::mutex mutex_;
  std::uint64_t most_bytes_ = 0;  // of a block
  std::uint64_t total_ = 0;
};

// A warning if the tensors have names that only mlx-lm reads.
std::optional<std::string> describe_names(const WeightsReader& reader) {
  if (reader.scheme() != "mlx" || !reader.config()) return std::nullopt;
  const std::string& type = reader.config()->model_type;
  const auto found =
      std::ranges::find_if(reader.weights(), [&](const Weight& weight) { return is_arranged_name(type, weight.name); });
  if (found == reader.weights().end()) return std::nullopt;
  return fmt::format("tensors have the names and shapes of mlx-lm, such as {}, not those of the original {} model",
                     quote(found->name), quote(type));
}

}  // namespace

Result<ConvertReport> dequantize_model(const std::string& quantized, const std::string& path, const DequantizeOptions& options) {
  if (options.dtype && !is_wide_float(*options.dtype)) {
    return fail(Errc::kInvalidArgument, "dtype is {}, it must be F64, F32, F16 or BF16", name(*options.dtype));
  }
  auto opened = Weights::open(quantized, options.open);
  if (!opened && TRY(is_pipeline_instead(opened.error(), quantized, options.open))) {
    return dequantize_pipeline(quantized, path, options);
  }
  const Weights weights = TRY(std::move(opened));
  if (weights.scheme() == kPlain) {
    return fail(Errc::kUnsupported, "{}: not a quantized model: no quantization config found", escape(weights.path()));
  }
  const WeightsReader& reader = reader_of(weights);
  const auto is_output = [&](const std::string& file) {
    std::error_code different;
    return std::filesystem::equivalent(file, path, different) && !different;
  };
  if (is_output(quantized) || std::ranges::any_of(reader.files(), is_output, &ModelFile::path)) {
    return fail(Errc::kInvalidArgument, "{}: the model is read from here; give another output", escape(path));
  }
  const std::vector<TensorSpec> specs = declare(reader, options.dtype);
  std::vector<std::string> stored;
  for (const ModelFile& file : reader.files()) stored.push_back(file.path);
  const std::string stem = stem_of_files(stored);
  Companions companions = is_single_file(path) ? Companions() : TRY(companions_of(reader, stored, specs));
  if (!options.force) TRY(check_free(path, names_of(companions, stem)));
  SinkOptions sink_options = options.sink;
  sink_options.metadata.merge(reader.metadata());
  const auto sink = TRY(create_tensor_writer(path, specs, sink_options,
                                             {.stem = stem, .companions = companions.files, .threads = options.work.threads}));
  Dequantization dequantization(reader, specs, *sink, options);
  TRY(dequantization.run());
  TRY(sink->commit());

  ConvertReport report{.tensors = specs.size(), .warnings = dequantization.warnings()};
  if (auto left_out = describe_dropped(reader.dropped()); !left_out.empty()) report.warnings.push_back(std::move(left_out));
  if (!companions.not_copied.empty()) report.notes.push_back(describe_not_copied(companions.not_copied));
  report.not_copied = std::move(companions.not_copied);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    report.converted += reader.weights()[i].is_quantized() ? 1 : 0;
    report.data_bytes += safetensors::data_bytes(specs[i]).value_or(0);
  }
  if (auto names = describe_names(reader)) report.warnings.push_back(std::move(*names));
  for (const TensorWriter::File& file : sink->files()) report.files.push_back({.path = file.path, .bytes = file.bytes});
  return report;
}

}  // namespace ballast
