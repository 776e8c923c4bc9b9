#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include <ballast/quantize.h>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "model/state.h"
#include "scheme/reader.h"
#include "jobs/quantize/report.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

// A tensor of the original with what became of it.
struct Pair {
  const TensorInfo* original;
  const QuantizedTensor* quantized;
  std::uint64_t row_bytes;  // of the original; of pieces of it if it was kept
  std::uint64_t rows;
};

struct Block {
  std::size_t pair;
  std::uint64_t first_row;
  std::uint64_t rows;
};

struct Buffers {
  std::vector<std::byte> original;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;
};

class Validation {
 public:
  Validation(const Model& original, const QuantizedSource& quantized, const ValidateOptions& options)
      : original_(original), quantized_(quantized), options_(options) {}

  Result<QuantizeReport> run() {
    if (auto paired = pair_tensors(); !paired) return std::unexpected(paired.error());
    const auto sums = quantized_.hash_files();
    if (!sums) return std::unexpected(sums.error());
    for (const FileSum& sum : *sums) {
      if (!sum.agrees()) return fail(Errc::kCorrupt, "{}", sum.difference());
    }
    if (auto read = quantized_.read_time_aware(); !read) return std::unexpected(read.error());
    cut();
    std::vector<Buffers> buffers(thread_count(options_.threads));
    ModelAccess::expect(original_, original_.tensors());
    quantized_.expect_all();
    parallel_for(blocks_.size(), static_cast<unsigned>(buffers.size()),
                 [&](unsigned worker, std::size_t i) { return note(compare(i, buffers[worker]), i); });
    if (error_) return std::unexpected(std::move(*error_));
    return report();
  }

 private:
  std::unexpected<Error> fail_tensor(const TensorInfo& tensor, const std::string& message) const {
    return fail(Errc::kCorrupt, "{}: tensor {}: {}", shown(quantized_.directory()), quote(tensor.name), message);
  }

  Result<void> pair_tensors() {
    for (const TensorInfo& tensor : original_.tensors()) {
      const QuantizedTensor* const found = quantized_.find(tensor.name);
      if (found == nullptr) return fail_tensor(tensor, fmt::format("is missing, {} has it", escape(original_.path())));
      if (!std::ranges::equal(found->shape, tensor.shape)) {
        return fail_tensor(tensor, fmt::format("has shape {}, in {} it is {}", to_string(found->shape), escape(original_.path()),
                                               to_string(tensor.shape)));
      }
      const bool has_own_dtype = !found->is_quantized() || quantized_.format() == QuantizeFormat::kParquet;
      if (has_own_dtype && found->dtype != tensor.dtype) {
        return fail_tensor(
            tensor, fmt::format("is {}, in {} it is {}", name(found->dtype), escape(original_.path()), name(tensor.dtype)));
      }
      const std::uint64_t rows = found->is_quantized() ? found->rows : tensor.bytes() == 0 ? 0 : 1;
      pairs_.push_back(
          {.original = &tensor, .quantized = found, .row_bytes = rows == 0 ? 0 : tensor.bytes() / rows, .rows = rows});
    }
    for (const QuantizedTensor& tensor : quantized_.tensors()) {
      if (!original_.has(tensor.name)) {
        return fail(Errc::kCorrupt, "{}: tensor {}: is not in {}", shown(quantized_.directory()), quote(tensor.name),
                    escape(original_.path()));
      }
    }
    return {};
  }

  // As quantize_model() does it, so that the figures are the same to the last bit. Those kept are compared in pieces of any size.
  void cut() {
    constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      std::uint64_t most = rows_of_block(pair.quantized->format.columns);
      if (!pair.quantized->is_quantized()) {
        pair.rows = pair.original->bytes();
        pair.row_bytes = 1;
        most = kPiece;
      }
      for (std::uint64_t row = 0; row < pair.rows; row += most) {
        blocks_.push_back({.pair = i, .first_row = row, .rows = std::min(most, pair.rows - row)});
        total_ += blocks_.back().rows * pair.row_bytes;
      }
    }
    figures_.resize(blocks_.size());
    differs_.resize(pairs_.size());
  }

  Result<void> compare(std::size_t index, Buffers& buffers) {
    const Block& block = blocks_[index];
    const Pair& pair = pairs_[block.pair];
    buffers.original.resize(block.rows * pair.row_bytes);
    if (auto read = original_.read_into(pair.original->name, block.first_row * pair.row_bytes, buffers.original); !read) {
      return read;
    }
    const RowFormat& format = pair.quantized->format;
    if (!pair.quantized->is_quantized()) {
      buffers.packed.resize(buffers.original.size());
      if (auto read = quantized_.read_kept(pair.original->name, block.first_row, buffers.packed); !read) return read;
      if (buffers.packed == buffers.original) return {};
      const std::scoped_lock lock(mutex_);
      differs_[block.pair] = true;
      return {};
    }
    buffers.packed.resize(block.rows * format.packed_bytes());
    buffers.scales.resize(block.rows * format.groups());
    buffers.offsets.resize(block.rows * format.groups());
    const auto read = quantized_.read_rows(pair.original->name, block.first_row,
                                           {.packed = buffers.packed, .scales = buffers.scales, .offsets = buffers.offsets});
    if (!read) return read;
    figures_[index] =
        compare_rows(format, pair.original->dtype, buffers.original, buffers.packed, buffers.scales, buffers.offsets);
    if (!std::isfinite(figures_[index].weights) || !std::isfinite(figures_[index].error)) {
      return fail_tensor(*pair.original, fmt::format("values in rows {} to {} are NaN or infinite", block.first_row,
                                                     block.first_row + block.rows - 1));
    }
    return {};
  }

  bool note(Result<void> outcome, std::size_t index) {
    const Pair& pair = pairs_[blocks_[index].pair];
    const std::scoped_lock lock(mutex_);
    done_ += blocks_[index].rows * pair.row_bytes;
    if (!outcome && !error_) error_ = std::move(outcome.error());
    if (!error_ && options_.progress && !options_.progress(done_, total_, pair.original->name)) {
      error_ = Error{.code = Errc::kCancelled, .message = "cancelled"};
    }
    return !error_;
  }

  // Parquet knows what the user said it is; MLX has no place for that.
  Modality modality() const {
    if (quantized_.format() == QuantizeFormat::kMlx) return original_.modality();
    for (const Modality known : {Modality::kText, Modality::kCode, Modality::kImage, Modality::kAudio}) {
      if (name(known) == quantized_.modality()) return known;
    }
    return original_.modality();
  }

  QuantizeReport report() const {
    std::vector<std::string> files = quantized_.files();
    std::ranges::transform(files, files.begin(), without_secrets);
    QuantizeReport report{.files = std::move(files),
                          .source_bytes = original_.file_size(),
                          .bytes = quantized_.file_size(),
                          .modality = modality()};
    std::size_t block = 0;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      QualitySums sums;
      for (; block < blocks_.size() && blocks_[block].pair == i; ++block) sums.add(figures_[block]);
      const QuantizedTensor& tensor = *pairs_[i].quantized;
      if (!tensor.is_quantized()) {
        ++report.kept;
        if (differs_[i])
          report.warnings.push_back(fmt::format("tensor {} was not quantized, but is not the same", quote(tensor.name)));
        continue;
      }
      report.layers.push_back({.name = tensor.name,
                               .dtype = pairs_[i].original->dtype,
                               .shape = tensor.shape,
                               .bits = tensor.format.bits,
                               .group_size = tensor.format.group_size,
                               .parameters = pairs_[i].original->elements(),
                               .bytes = tensor.bytes,
                               .planned_bits = tensor.format.bits,
                               .method = {},  // the files do not tell
                               .equalized = !tensor.format.restore.empty(),
                               .quality = quality_of(sums)});
    }
    summarize_layers(report, options_.min_accuracy);
    report.passed = report.passed && std::ranges::find(differs_, true) == differs_.end();
    return report;
  }

  const Model& original_;
  const QuantizedSource& quantized_;
  const ValidateOptions& options_;
  std::vector<Pair> pairs_;
  std::vector<Block> blocks_;
  std::mutex mutex_;
  std::vector<QualitySums> figures_;  // for each block
  std::vector<bool> differs_;         // for each pair that was kept
  std::optional<Error> error_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

// Whether bits and groups make sense of the tensors, and files have the sums that their metadata tells.
Result<VerifyReport> verify_quantized(const std::string& path, const VerifyOptions& options) {
  VerifyReport report{.files = {}, .checks = {"quantization"}, .skipped = {}, .defects = {}, .warnings = {}};
  if (options.values) report.skipped.emplace_back("values: they are codes; dequantize the model, and look at the result");
  const auto defect = [&](std::string message) {
    report.defects.push_back({.check = report.checks.back(), .message = std::move(message)});
  };
  const auto source = open_quantized(path);
  if (!source && source.error().code != Errc::kCorrupt) return std::unexpected(source.error());
  if (!source) {
    defect(source.error().message);
    return report;
  }
  for (const std::string& file : (*source)->files()) {
    report.files.push_back({.path = without_secrets(file), .size = size_of(file)});
    report.bytes += report.files.back().size;
  }
  report.tensors = (*source)->tensors().size();
  if (const auto times = (*source)->read_time_aware(); !times) defect(times.error().message);
  if ((*source)->format() != QuantizeFormat::kParquet) return report;
  report.checks.emplace_back("sha256");
  const auto sums = (*source)->hash_files(options.progress);
  if (!sums) return std::unexpected(sums.error());
  for (std::size_t i = 0; i < sums->size(); ++i) {
    if (!(*sums)[i].agrees()) defect((*sums)[i].difference());
    if (options.sha256) report.files[i].sha256 = (*sums)[i].found;
  }
  return report;
}

}  // namespace

Result<QuantizeReport> validate_model(const Model& original, const std::string& quantized, const ValidateOptions& options) {
  if (std::isnan(options.min_accuracy) || options.min_accuracy < 0 || options.min_accuracy > 1) {
    return fail(Errc::kInvalidArgument, "min_accuracy is {}, it must be from 0 to 1", options.min_accuracy);
  }
  const auto source = open_quantized(quantized);
  if (!source) return std::unexpected(source.error());
  return Validation(original, **source, options).run();
}

Result<VerifyReport> verify_model(const std::string& path, const VerifyOptions& options) {
  if (is_parquet_model(path)) return verify_quantized(path, options);
  auto report = verify(path, options);
  if (!report || !report->ok()) return report;
  const auto model = Model::open(path, options.open);
  if (!model || !model->config() || !model->config()->quantized) return report;
  const auto quantized = verify_quantized(path, {});
  if (!quantized) {
    report->skipped.push_back(fmt::format("quantization: {}", quantized.error().message));
    return report;
  }
  report->checks.insert(report->checks.end(), quantized->checks.begin(), quantized->checks.end());
  report->defects.insert(report->defects.end(), quantized->defects.begin(), quantized->defects.end());
  return report;
}

}  // namespace ballast
