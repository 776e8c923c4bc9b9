#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include <ballast/quantize.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/lora/merge.h"
#include "jobs/quantize/report.h"
#include "model/state.h"
#include "scheme/mlx/arrange.h"
#include "scheme/reader.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {
namespace {

// A tensor of the original and its quantized counterpart.
struct LayerPair {
  const TensorInfo* original;
  const Weight* quantized;
  std::uint64_t row_bytes;  // of the original; 1 if unquantized
  std::uint64_t rows;
};

struct LayerBlock {
  std::size_t pair;
  std::uint64_t first_row;
  std::uint64_t rows;
};

struct Buffers {
  std::vector<std::byte> original;
  std::vector<float> decoded;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;
};

class Validation {
 public:
  Validation(const Model& original, const WeightsReader& quantized, const ValidateOptions& options)
      : original_(original), quantized_(quantized), options_(options) {}

  Result<QuantizeReport> run() {
    TRY(pair_tensors());
    const auto sums = TRY(quantized_.hash_files(before_total_is_known()));
    for (const FileSum& sum : sums) {
      if (!sum.agrees()) return fail(Errc::kCorrupt, "{}", sum.difference());
    }
    TRY(quantized_.read_time_aware());
    cut();
    std::vector<Buffers> buffers(thread_count(options_.work.threads));
    ModelAccess::expect(original_, original_.tensors());
    quantized_.expect_all();
    TRY((BlockLoop{.work = options_.work, .total = total_}.run(
        blocks_.size(), [&](unsigned worker, std::size_t i) { return compare(i, buffers[worker]); },
        [&](std::size_t i) {
          const LayerPair& pair = pairs_[blocks_[i].pair];
          return BlockDone{.bytes = blocks_[i].rows * pair.row_bytes, .what = pair.original->name};
        })));
    return report();
  }

 private:
  std::unexpected<Error> fail_tensor(const TensorInfo& tensor, const std::string& message) const {
    return fail(Errc::kCorrupt, "{}: tensor {}: {}", escape(quantized_.path()), quote(tensor.name), message);
  }

  Result<void> pair_tensors() {
    for (const TensorInfo& tensor : original_.tensors()) {
      const Weight* const found = quantized_.find(tensor.name);
      if (found == nullptr) return fail_tensor(tensor, fmt::format("missing; {} has it", escape(original_.path())));
      if (!std::ranges::equal(found->shape, tensor.shape)) {
        return fail_tensor(tensor, fmt::format("shape is {}, in {} it is {}", to_string(found->shape), escape(original_.path()),
                                               to_string(tensor.shape)));
      }
      const bool has_own_dtype = !found->is_quantized() || quantized_.knows_original();
      if (has_own_dtype && found->dtype != tensor.dtype) {
        return fail_tensor(
            tensor, fmt::format("dtype is {}, in {} it is {}", name(found->dtype), escape(original_.path()), name(tensor.dtype)));
      }
      const std::uint64_t rows = found->is_quantized() ? found->rows : tensor.bytes() == 0 ? 0 : 1;
      pairs_.push_back(
          {.original = &tensor, .quantized = found, .row_bytes = rows == 0 ? 0 : tensor.bytes() / rows, .rows = rows});
    }
    for (const Weight& tensor : quantized_.weights()) {
      if (!original_.has(tensor.name)) {
        return fail(Errc::kCorrupt, "{}: tensor {}: not in {}", escape(quantized_.path()), quote(tensor.name),
                    escape(original_.path()));
      }
    }
    return {};
  }

  // The same blocks as in quantize_model(), so that the metrics are equal to the last bit.
  void cut() {
    constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      LayerPair& pair = pairs_[i];
      std::uint64_t most = quantized_.format(*pair.quantized).block_rows();
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
    sums_.resize(blocks_.size());
    differs_.resize(pairs_.size());
  }

  Result<void> compare(std::size_t index, Buffers& buffers) {
    const LayerBlock& block = blocks_[index];
    const LayerPair& pair = pairs_[block.pair];
    buffers.original.resize(block.rows * pair.row_bytes);
    TRY(original_.read_into(pair.original->name, block.first_row * pair.row_bytes, buffers.original));
    const RowFormat& format = quantized_.format(*pair.quantized);
    if (!pair.quantized->is_quantized()) {
      buffers.packed.resize(buffers.original.size());
      TRY(quantized_.read_bytes(*pair.quantized, block.first_row, buffers.packed));
      if (buffers.packed == buffers.original) return {};
      const std::scoped_lock lock(mutex_);
      differs_[block.pair] = true;
      return {};
    }
    if (!quantized_.has_codes(*pair.quantized)) return compare_decoded(index, buffers);
    buffers.packed.resize(block.rows * format.packed_bytes());
    buffers.scales.resize(block.rows * format.groups());
    buffers.offsets.resize(block.rows * format.groups());
    TRY(quantized_.read_codes(*pair.quantized, block.first_row,
                              {.packed = buffers.packed, .scales = buffers.scales, .offsets = buffers.offsets}));
    sums_[index] = compare_rows(format, pair.original->dtype, buffers.original, buffers.packed, buffers.scales, buffers.offsets);
    return check_finite(index);
  }

  Result<void> compare_decoded(std::size_t index, Buffers& buffers) {
    const LayerBlock& block = blocks_[index];
    const LayerPair& pair = pairs_[block.pair];
    const RowFormat& format = quantized_.format(*pair.quantized);
    buffers.decoded.resize(block.rows * format.columns);
    TRY(quantized_.read_rows(*pair.quantized, block.first_row, block.rows, DType::kF32,
                             std::as_writable_bytes(std::span(buffers.decoded))));
    sums_[index] = compare_decoded_rows(format, pair.original->dtype, buffers.original, buffers.decoded);
    return check_finite(index);
  }

  Result<void> check_finite(std::size_t index) const {
    const LayerBlock& block = blocks_[index];
    const LayerPair& pair = pairs_[block.pair];
    if (!std::isfinite(sums_[index].weights) || !std::isfinite(sums_[index].error)) {
      return fail_tensor(*pair.original, fmt::format("values in rows {} to {} are NaN or infinite", block.first_row,
                                                     block.first_row + block.rows - 1));
    }
    return {};
  }

  // Parquet records the modality that the user set; MLX does not.
  Modality modality() const {
    const bool is_known = quantized_.knows_original() && quantized_.modality() != Modality::kUnknown;
    return is_known ? quantized_.modality() : original_.modality();
  }

  QuantizeReport report() const {
    std::vector<std::string> files;
    for (const ModelFile& file : quantized_.files()) files.push_back(without_secrets(file.path));
    QuantizeReport report{.files = std::move(files),
                          .source_bytes = original_.file_size(),
                          .bytes = quantized_.file_size(),
                          .modality = modality()};
    Unquantized others;
    std::size_t block = 0;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      QualitySums sums;
      for (; block < blocks_.size() && blocks_[block].pair == i; ++block) sums.add(sums_[block]);
      const Weight& tensor = *pairs_[i].quantized;
      if (!tensor.is_quantized()) {
        ++report.unquantized;
        others.parameters += pairs_[i].original->elements();
        others.bytes += pairs_[i].original->bytes();
        if (differs_[i])
          report.warnings.push_back(fmt::format("tensor {} is unquantized, but differs from the original", quote(tensor.name)));
        continue;
      }
      report.layers.push_back({.name = tensor.name,
                               .dtype = pairs_[i].original->dtype,
                               .shape = tensor.shape,
                               .bits = tensor.storage.bits,
                               .group_size = tensor.storage.group_size,
                               .parameters = pairs_[i].original->elements(),
                               .bytes = tensor.bytes,
                               .planned_bits = tensor.storage.bits,
                               .method = {},  // the files do not record it
                               .equalized = tensor.storage.equalized,
                               .quality = quality_of(sums)});
    }
    summarize_layers(report, others, options_.min_accuracy);
    report.passed = report.passed && std::ranges::find(differs_, true) == differs_.end();
    return report;
  }

  const Model& original_;
  const WeightsReader& quantized_;
  // Hashing comes first, before the total is known.
  WorkOptions before_total_is_known() const {
    WorkOptions work = options_.work;
    if (!work.progress) return work;
    work.progress = [this](std::uint64_t, std::uint64_t, std::string_view what) { return options_.work.progress(0, 0, what); };
    return work;
  }

  const ValidateOptions& options_;
  std::vector<LayerPair> pairs_;
  std::vector<LayerBlock> blocks_;
  std::mutex mutex_;
  std::vector<QualitySums> sums_;  // for each block
  std::vector<bool> differs_;      // for each unquantized pair
  std::uint64_t total_ = 0;
};

// The original as mlx-lm has it, if some of its names or shapes are not those of the quantized model.
Result<MlxArrangement> arrange_like(const Model& original, const WeightsReader& quantized) {
  MlxArrangement none;
  const auto is_here = [&](const TensorInfo& tensor) {
    const Weight* const found = quantized.find(tensor.name);
    return found != nullptr && std::ranges::equal(found->shape, tensor.shape);
  };
  const bool same = quantized.weights().size() == original.tensors().size() && std::ranges::all_of(original.tensors(), is_here);
  if (quantized.scheme() != "mlx" || same) return none;
  auto arrangement = arrange_for_mlx_lm(original);
  if (!arrangement && arrangement.error().code != Errc::kUnsupported) return std::unexpected(arrangement.error());
  if (!arrangement) return none;
  return arrangement;
}

}  // namespace

Result<QuantizeReport> validate_model(const Model& original, const std::string& quantized, const ValidateOptions& options) {
  if (std::isnan(options.min_accuracy) || options.min_accuracy < 0 || options.min_accuracy > 1) {
    return fail(Errc::kInvalidArgument, "min_accuracy is {}, it must be from 0 to 1", options.min_accuracy);
  }
  TRY(check_merged(original, options.loras));
  const Weights weights = TRY(Weights::open(quantized, options.open));
  if (weights.scheme() == kPlain) {
    return fail(Errc::kUnsupported, "{}: not a quantized model: no quantization config found", escape(weights.path()));
  }
  const WeightsReader& reader = reader_of(weights);
  MlxArrangement arrangement = TRY(arrange_like(original, reader));
  auto report = Validation(arrangement.model_or(original), reader, options).run();
  if (!report || !arrangement.model) return report;
  report->source_bytes = original.file_size();
  report->left_out = std::move(arrangement.left_out);
  report->notes.emplace_back("compared with the tensors of the original as mlx-lm arranges them");
  return report;
}

}  // namespace ballast
