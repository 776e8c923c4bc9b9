#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include <ballast/quantize.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "convert/nonfinite.h"
#include "format/safetensors/layout.h"
#include "model/locate.h"
#include "scheme/parquet/metadata.h"
#include "scheme/reader.h"
#include "jobs/companions.h"
#include "format/tensor_writer.h"
#include "source/uri.h"

namespace ballast {
namespace {

struct Block {
  std::size_t tensor;
  std::uint64_t first_row;
  std::uint64_t rows;
};

bool is_wide_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::vector<TensorSpec> declare(const QuantizedSource& source, std::optional<DType> dtype) {
  std::vector<TensorSpec> specs;
  for (const QuantizedTensor& tensor : source.tensors()) {
    const DType before = is_wide_float(tensor.dtype) || !tensor.is_quantized() ? tensor.dtype : DType::kF32;
    specs.push_back(
        {.name = tensor.name, .dtype = tensor.is_quantized() ? dtype.value_or(before) : tensor.dtype, .shape = tensor.shape});
  }
  return specs;
}

// The files beside the weights, with a config that says nothing about quantization.
Result<std::vector<Companion>> companions_of(const QuantizedSource& source, std::span<const TensorSpec> specs) {
  auto companions = find_companions(source.directory(), main_dtype(specs));
  if (!companions) return companions;
  leave_out_quantization(*companions);
  std::erase_if(*companions, [](const Companion& companion) { return companion.name == kParquetMetadataFile; });
  const auto config = std::ranges::find(*companions, "config.json", &Companion::name);
  if (config != companions->end()) config->text = with_quantization(config->text, {});
  return companions;
}

class Dequantization {
 public:
  Dequantization(const QuantizedSource& source, std::span<const TensorSpec> specs, FileSink& sink,
                 const DequantizeOptions& options)
      : source_(source), specs_(specs), sink_(sink), options_(options) {}

  Result<void> run() {
    const bool any_order = specs_.empty() || sink_.place(0).has_value();
    std::uint64_t largest = 1;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const std::uint64_t bytes = cut(i);
      if (bytes > options_.memory_limit) {
        return fail(Errc::kUnsupported, "{}: tensor {}: a block of it takes {} bytes, the memory limit is {}",
                    shown(source_.directory()), quote(specs_[i].name), bytes, options_.memory_limit);
      }
      largest = std::max(largest, bytes);
    }
    nonfinite_.resize(specs_.size());
    // What is read, its numbers, and what they are written as.
    const std::uint64_t most = std::max<std::uint64_t>(options_.memory_limit / 2 / largest, 1);
    const auto threads = static_cast<unsigned>(std::min<std::uint64_t>(thread_count(options_.sink.threads), most));
    source_.expect_all();
    parallel_for(blocks_.size(), any_order ? threads : 1,
                 [&](unsigned, std::size_t i) { return note(move(blocks_[i]), blocks_[i]); });
    if (error_) return std::unexpected(std::move(*error_));
    return {};
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
    const QuantizedTensor& from = source_.tensors()[tensor];
    return from.is_quantized() ? from.format.columns * bits(specs_[tensor].dtype) / 8 : 1;
  }

  // Returns the memory that a block of the tensor takes.
  std::uint64_t cut(std::size_t tensor) {
    constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
    const QuantizedTensor& from = source_.tensors()[tensor];
    const std::uint64_t rows = from.is_quantized() ? from.rows : from.bytes;
    const std::uint64_t most = from.is_quantized() ? rows_of_block(from.format.columns) : kPiece;
    for (std::uint64_t row = 0; row < rows; row += most) {
      blocks_.push_back({.tensor = tensor, .first_row = row, .rows = std::min(most, rows - row)});
      total_ += blocks_.back().rows * row_bytes(tensor);
    }
    return std::min(most, rows) * (row_bytes(tensor) + (from.is_quantized() ? from.format.columns * 6 : 1));
  }

  Result<void> move(const Block& block) {
    const QuantizedTensor& from = source_.tensors()[block.tensor];
    std::vector<std::byte> bytes(block.rows * row_bytes(block.tensor));
    auto read = from.is_quantized()
                    ? source_.dequantize(from.name, block.first_row, block.rows, specs_[block.tensor].dtype, bytes)
                    : source_.read_kept(from.name, block.first_row, bytes);
    if (!read) return read;
    if (from.is_quantized()) {
      const std::uint64_t count = count_nonfinite(specs_[block.tensor].dtype, bytes);
      const std::scoped_lock lock(mutex_);
      nonfinite_[block.tensor] += count;
    }
    return sink_.write(block.tensor, block.first_row * row_bytes(block.tensor), bytes);
  }

  bool note(Result<void> outcome, const Block& block) {
    const std::scoped_lock lock(mutex_);
    done_ += block.rows * row_bytes(block.tensor);
    if (!outcome && !error_) error_ = std::move(outcome.error());
    if (!error_ && options_.progress && !options_.progress(done_, total_, specs_[block.tensor].name)) {
      error_ = Error{.code = Errc::kCancelled, .message = "cancelled"};
    }
    return !error_;
  }

  const QuantizedSource& source_;
  std::span<const TensorSpec> specs_;
  FileSink& sink_;
  const DequantizeOptions& options_;
  std::vector<Block> blocks_;
  std::vector<std::uint64_t> nonfinite_;  // values of each tensor
  std::mutex mutex_;
  std::optional<Error> error_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

Result<ConvertReport> dequantize_model(const std::string& quantized, const std::string& path, const DequantizeOptions& options) {
  if (options.dtype && !is_wide_float(*options.dtype)) {
    return fail(Errc::kInvalidArgument, "dtype is {}, it must be F64, F32, F16 or BF16", name(*options.dtype));
  }
  const auto source = open_quantized(quantized);
  if (!source) return std::unexpected(source.error());
  const auto is_output = [&](const std::string& file) {
    std::error_code different;
    return std::filesystem::equivalent(file, path, different) && !different;
  };
  if (is_output(quantized) || std::ranges::any_of((*source)->files(), is_output)) {
    return fail(Errc::kInvalidArgument,
                "{}: is where the model is read from, and quantizing it again would lose more: name another", escape(path));
  }
  const std::vector<TensorSpec> specs = declare(**source, options.dtype);
  const auto companions = companions_of(**source, specs);
  if (!companions) return std::unexpected(companions.error());
  const auto sink = create_file_sink(path, specs, options.sink, {.companions = *companions});
  if (!sink) return std::unexpected(sink.error());
  Dequantization dequantization(**source, specs, **sink, options);
  if (auto done = dequantization.run(); !done) return std::unexpected(done.error());
  if (auto committed = (*sink)->commit(); !committed) return std::unexpected(committed.error());

  ConvertReport report{.tensors = specs.size(), .warnings = dequantization.warnings()};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    report.converted += (*source)->tensors()[i].is_quantized() ? 1 : 0;
    report.data_bytes += safetensors::data_bytes(specs[i]).value_or(0);
  }
  for (const FileSink::File& file : (*sink)->files()) report.files.push_back({.path = file.path, .bytes = file.bytes});
  return report;
}

}  // namespace ballast
