#include <algorithm>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>

#include <sys/stat.h>

#include <ballast/quantize.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/text.h"
#include "convert/nonfinite.h"
#include "quantize/parquet_metadata.h"
#include "quantize/quality.h"
#include "quantize/quantized_source.h"
#include "quantize/report.h"
#include "sink/companions.h"
#include "sink/quantized_output.h"
#include "sink/source_identity.h"
#include "source/sha256.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

RowFormat row_format(const TensorInfo& tensor, const LayerPlan& plan, QuantizeFormat format) {
  const bool is_mlx = format == QuantizeFormat::kMlx;
  return {.columns = plan.columns,
          .bits = plan.bits,
          .group_size = plan.group_size,
          .affine = is_mlx ? Affine::kScaleBias : Affine::kScaleZero,
          .parameters = is_mlx ? mlx_parameter_dtype(tensor.dtype) : DType::kBF16};
}

// Rows of bytes: one for each element of the first dimension if it fills whole bytes, else all at once.
RowFormat kept_format(const TensorInfo& tensor) {
  const std::uint64_t first = tensor.shape.empty() ? 1 : tensor.shape.front();
  return {.columns = first != 0 && tensor.bytes() % first == 0 ? tensor.bytes() / first : tensor.bytes()};
}

void add_blocks(std::vector<TensorBlock>& blocks, std::size_t tensor, std::uint64_t rows, std::uint64_t columns) {
  const std::uint64_t most = rows_of_block(columns);
  const auto count = static_cast<std::uint32_t>(std::max<std::uint64_t>((rows + most - 1) / most, 1));
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(
        {.tensor = tensor, .first_row = i * most, .rows = std::min(most, rows - i * most), .number = i, .count = count});
  }
}

// The codes of a block, for a thread to fill again and again.
struct Buffers {
  std::vector<std::byte> in;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;

  CodedRows rows(const RowFormat& format, std::uint64_t count) {
    packed.resize(count * format.packed_bytes());
    scales.resize(count * format.groups());
    offsets.resize(count * format.groups());
    return {.packed = packed, .scales = scales, .offsets = offsets};
  }
};

std::string hash_of(std::string_view text) {
  Sha256 hash;
  hash.add(as_bytes(text));
  return hash.hex();
}

class Quantization {
 public:
  Quantization(const Model& model, const QuantizeOptions& options)
      : options_(options),
        work_{.model = model,
              .config = options.config,
              .modality = options.config.modality.value_or(model.modality()),
              .plans = {},
              .formats = {},
              .blocks = {},
              .companions = {},
              .key = {},
              .resume_key = {},
              .source_json = {}} {}

  Result<QuantizeReport> run(const std::string& directory);

 private:
  Result<void> prepare();
  Result<void> refuse_quantized() const;
  Result<void> check_names() const;
  void cut();
  Result<void> choose_threads();
  Result<void> raise_bits();
  Result<Quality> sample(std::size_t tensor);
  Result<Quality> measure(std::size_t tensor);
  Result<void> process(QuantizedOutput& output);
  Result<void> process_block(QuantizedOutput& output, std::size_t block, Buffers& buffers);
  Result<QualitySums> code(const TensorBlock& block, Buffers& buffers);
  Result<void> read_block(const TensorBlock& block, std::uint64_t row_bytes, std::vector<std::byte>& into);
  Result<void> check(const TensorBlock& block, const QualitySums& sums, const Buffers& buffers) const;
  Result<void> check_layer(std::size_t tensor);
  bool note(Result<void> outcome, std::size_t block);
  QuantizeReport report() const;
  Result<void> measure_skipped(const std::string& directory);
  std::string make_key() const;
  bool is_finished(const std::string& directory) const;
  std::unexpected<Error> below_minimum(std::size_t tensor, double cosine) const {
    return fail_tensor(tensor, Errc::kBelowMinimum,
                       fmt::format("cosine {:.5f} at {} bits is below the minimum of {}; nothing was written", cosine,
                                   work_.plans[tensor].bits, options_.config.min_accuracy));
  }
  std::vector<std::string> warnings() const;
  std::uint64_t source_row_bytes(std::size_t tensor) const;
  std::unexpected<Error> fail_tensor(std::size_t tensor, Errc code, const std::string& message) const {
    return fail(code, "{}: tensor {}: {}", escape(work_.model.path()), quote(work_.model.tensors()[tensor].name), message);
  }

  const QuantizeOptions& options_;
  QuantizeWork work_;
  std::vector<unsigned> planned_bits_;
  unsigned threads_ = 1;
  std::mutex mutex_;
  std::vector<QualitySums> figures_;      // for each block
  std::vector<bool> skipped_;             // blocks of an earlier run, whose figures are not known yet
  std::vector<std::size_t> blocks_left_;  // of each tensor
  std::optional<Error> error_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

std::uint64_t Quantization::source_row_bytes(std::size_t tensor) const {
  const std::uint64_t columns = work_.formats[tensor].columns;
  return work_.is_quantized(tensor) ? columns * bits(work_.model.tensors()[tensor].dtype) / 8 : columns;
}

// Everything that depends on the plans.
void Quantization::cut() {
  work_.formats.clear();
  work_.blocks.clear();
  for (std::size_t i = 0; i < work_.plans.size(); ++i) {
    const TensorInfo& tensor = work_.model.tensors()[i];
    if (work_.is_quantized(i)) {
      work_.formats.push_back(row_format(tensor, work_.plans[i], options_.config.format));
      add_blocks(work_.blocks, i, work_.plans[i].rows, work_.plans[i].columns);
    } else {
      work_.formats.push_back(kept_format(tensor));
      add_blocks(work_.blocks, i, work_.formats[i].columns == 0 ? 0 : tensor.bytes() / work_.formats[i].columns,
                 work_.formats[i].columns);
    }
  }
}

// Weights whose scales lie beside them would lose their meaning.
Result<void> Quantization::refuse_quantized() const {
  constexpr std::string_view kScales = ".scales";
  for (const TensorInfo& tensor : work_.model.tensors()) {
    if (!tensor.name.ends_with(kScales)) continue;
    const std::string base(tensor.name.substr(0, tensor.name.size() - kScales.size()));
    const TensorInfo* const weight = work_.model.has(base) ? work_.model.find(base) : work_.model.find(base + ".weight");
    if (weight != nullptr && (weight->dtype == DType::kU32 || weight->dtype == DType::kU8)) {
      return fail(Errc::kUnsupported, "{}: tensor {} is quantized already: dequantize the model first",
                  escape(work_.model.path()), quote(weight->name));
    }
  }
  return {};
}

// In MLX's format names tell what belongs together, so they must not do so by chance.
Result<void> Quantization::check_names() const {
  const auto tensors = work_.model.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string_view tensor = tensors[i].name;
    if (!work_.is_quantized(i)) {
      if (!tensor.ends_with(".scales") && !tensor.ends_with(".biases")) continue;
      return fail_tensor(i, Errc::kUnsupported, "MLX would take it for a part of a quantized tensor; rename it with convert");
    }
    constexpr std::string_view kWeight = ".weight";
    const bool is_weight = tensor.ends_with(kWeight);
    const std::string base(tensor.substr(0, tensor.size() - (is_weight ? kWeight.size() : 0)));
    for (const std::string& needed : {base + ".scales", base + ".biases", is_weight ? base : base + ".weight"}) {
      if (!work_.model.has(needed)) continue;
      return fail_tensor(
          i, Errc::kUnsupported,
          fmt::format("to be quantized it must be alone with its name, but there is {} too; keep it, or rename one",
                      quote(needed)));
    }
  }
  return {};
}

Result<void> Quantization::prepare() {
  if (auto checked = refuse_quantized(); !checked) return checked;
  auto plans = plan_layers(work_.model, options_.config);
  if (!plans) return std::unexpected(plans.error());
  work_.plans = std::move(*plans);
  for (const LayerPlan& plan : work_.plans) planned_bits_.push_back(plan.bits);
  if (options_.config.format == QuantizeFormat::kMlx) {
    if (auto checked = check_names(); !checked) return checked;
  }
  cut();
  if (!work_.model.directory().empty()) {
    auto companions = find_companions(work_.model.directory(), {});
    if (!companions) return std::unexpected(companions.error());
    work_.companions = std::move(*companions);
  }
  return choose_threads();
}

// A thread has the source's bytes of a block and what becomes of them; what Parquet gathers, and names and headers, have the
// rest.
Result<void> Quantization::choose_threads() {
  constexpr std::uint64_t kFixed = std::uint64_t{128} << 20;
  std::uint64_t largest = 1;
  for (const TensorBlock& block : work_.blocks) {
    const RowFormat& format = work_.formats[block.tensor];
    const std::uint64_t coded =
        work_.is_quantized(block.tensor) ? format.packed_bytes() + format.groups() * 2 * sizeof(float) : 0;
    const std::uint64_t row = source_row_bytes(block.tensor) + coded;
    const std::uint64_t bytes = block.rows * row;
    const std::uint64_t limit = std::uint64_t{options_.config.max_memory_limit_mb} << 20;
    if (bytes > limit / 2) {
      return fail_tensor(block.tensor, Errc::kUnsupported,
                         fmt::format("a block of it takes {} bytes, half of the memory limit is {}", bytes, limit / 2));
    }
    largest = std::max(largest, bytes);
  }
  const std::uint64_t limit = std::uint64_t{options_.config.max_memory_limit_mb} << 20;
  const std::uint64_t room = std::max(limit / 3, limit - std::min(limit, kFixed));
  threads_ = static_cast<unsigned>(std::clamp<std::uint64_t>(room / largest, 1, thread_count(options_.config.num_threads)));
  return {};
}

Result<void> Quantization::read_block(const TensorBlock& block, std::uint64_t row_bytes, std::vector<std::byte>& into) {
  into.resize(block.rows * row_bytes);
  return work_.model.read_into(work_.model.tensors()[block.tensor].name, block.first_row * row_bytes, into);
}

Result<QualitySums> Quantization::code(const TensorBlock& block, Buffers& buffers) {
  const RowFormat& format = work_.formats[block.tensor];
  const DType dtype = work_.model.tensors()[block.tensor].dtype;
  if (auto read = read_block(block, source_row_bytes(block.tensor), buffers.in); !read) return std::unexpected(read.error());
  const QualitySums sums = quantize_rows(options_.config.method, format, dtype, buffers.in, {}, buffers.rows(format, block.rows));
  if (auto checked = check(block, sums, buffers); !checked) return std::unexpected(checked.error());
  return sums;
}

Result<void> Quantization::check(const TensorBlock& block, const QualitySums& sums, const Buffers& buffers) const {
  if (!std::isfinite(sums.weights)) {
    const TensorInfo& tensor = work_.model.tensors()[block.tensor];
    const std::uint64_t count = count_nonfinite(tensor.dtype, buffers.in);
    const std::string rows = fmt::format("in rows {} to {}", block.first_row, block.first_row + block.rows - 1);
    if (count == 0) {
      return fail_tensor(block.tensor, Errc::kUnsupported,
                         fmt::format("values of {} {} are too large for F32", name(tensor.dtype), rows));
    }
    return fail_tensor(block.tensor, Errc::kCorrupt,
                       fmt::format("{} of {} values {} are NaN or infinite", count, sums.count, rows));
  }
  const auto is_finite = [](float value) { return std::isfinite(value); };
  if (!std::ranges::all_of(buffers.scales, is_finite) || !std::ranges::all_of(buffers.offsets, is_finite)) {
    return fail_tensor(block.tensor, Errc::kUnsupported, "its values are too far apart for the scale of a group");
  }
  return {};
}

// Rows from all over the tensor, as a first guess.
Result<Quality> Quantization::sample(std::size_t tensor) {
  constexpr std::uint64_t kRows = 64;
  const LayerPlan& plan = work_.plans[tensor];
  const std::uint64_t rows = std::min(std::clamp<std::uint64_t>(kBlockValues / 16 / plan.columns, 1, kRows), plan.rows);
  QualitySums sums;
  Buffers buffers;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const TensorBlock row{.tensor = tensor, .first_row = i * plan.rows / rows, .rows = 1, .number = 0, .count = 1};
    const auto coded = code(row, buffers);
    if (!coded && coded.error().code == Errc::kIo) return std::unexpected(coded.error());
    if (!coded) return Quality{.cosine_similarity = -1};  // measuring it all finds the words for it
    sums.add(*coded);
  }
  return quality_of(sums);
}

Result<Quality> Quantization::measure(std::size_t tensor) {
  std::vector<TensorBlock> blocks;
  std::ranges::copy_if(work_.blocks, std::back_inserter(blocks), [&](const TensorBlock& b) { return b.tensor == tensor; });
  std::vector<QualitySums> sums(blocks.size());
  std::vector<Buffers> buffers(threads_);
  std::optional<Error> error;
  std::mutex mutex;
  parallel_for(blocks.size(), threads_, [&](unsigned worker, std::size_t i) {
    auto coded = code(blocks[i], buffers[worker]);
    const std::scoped_lock lock(mutex);
    if (coded) sums[i] = *coded;
    if (!coded && !error) error = std::move(coded.error());
    if (!error && options_.progress && !options_.progress(0, 0, work_.model.tensors()[tensor].name)) {
      error = Error{.code = Errc::kCancelled, .message = "cancelled"};
    }
    return !error;
  });
  if (error) return std::unexpected(std::move(*error));
  QualitySums all;
  for (const QualitySums& block : sums) all.add(block);
  return quality_of(all);
}

// Gives layers that would be worse than they may be more bits, or gives up, before anything is written. What a sample shows to be
// good enough by far is not looked at closer; should it not be, the figures at the end tell.
Result<void> Quantization::raise_bits() {
  if (options_.config.min_accuracy <= 0) return {};
  for (std::size_t i = 0; i < work_.plans.size(); ++i) {
    LayerPlan& plan = work_.plans[i];
    while (plan.bits != 0 && (plan.bits < 8 || options_.config.fail_fast)) {
      const auto guess = sample(i);
      if (!guess) return std::unexpected(guess.error());
      if (1 - guess->cosine_similarity <= (1 - options_.config.min_accuracy) / 2) break;
      const auto exact = measure(i);
      if (!exact) return std::unexpected(exact.error());
      if (exact->cosine_similarity >= options_.config.min_accuracy) break;
      if (options_.config.fail_fast) {
        return below_minimum(i, exact->cosine_similarity);
      }
      plan.bits = plan.bits < 4 ? 4 : 8;
      work_.formats[i].bits = plan.bits;
    }
  }
  return {};
}

bool Quantization::note(Result<void> outcome, std::size_t block) {
  const TensorBlock& at = work_.blocks[block];
  const std::scoped_lock lock(mutex_);
  done_ += at.rows * source_row_bytes(at.tensor);
  if (!outcome && !error_) error_ = std::move(outcome.error());
  if (!error_ && options_.progress && !options_.progress(done_, total_, work_.model.tensors()[at.tensor].name)) {
    error_ = Error{.code = Errc::kCancelled, .message = "cancelled"};
  }
  return !error_;
}

// With fail_fast, the last block of a layer to be coded tells whether the layer is good enough. Blocks of an earlier run are
// coded again for that.
Result<void> Quantization::check_layer(std::size_t tensor) {
  if (!options_.config.fail_fast) return {};
  const std::scoped_lock lock(mutex_);
  if (--blocks_left_[tensor] > 0) return {};
  QualitySums sums;
  for (std::size_t i = 0; i < work_.blocks.size(); ++i) {
    if (work_.blocks[i].tensor == tensor) sums.add(figures_[i]);
  }
  const Quality quality = quality_of(sums);
  if (quality.cosine_similarity >= options_.config.min_accuracy) return {};
  return below_minimum(tensor, quality.cosine_similarity);
}

Result<void> Quantization::process_block(QuantizedOutput& output, std::size_t block, Buffers& buffers) {
  const TensorBlock& at = work_.blocks[block];
  if (skipped_[block] && !(options_.config.fail_fast && work_.is_quantized(at.tensor))) return {};
  if (!work_.is_quantized(at.tensor)) {
    if (auto read = read_block(at, source_row_bytes(at.tensor), buffers.in); !read) return read;
    return output.write_kept(block, buffers.in);
  }
  const auto sums = code(at, buffers);
  if (!sums) return std::unexpected(sums.error());
  figures_[block] = *sums;
  if (auto checked = check_layer(at.tensor); !checked || skipped_[block]) return checked;
  return output.write(block, {.packed = buffers.packed, .scales = buffers.scales, .offsets = buffers.offsets});
}

Result<void> Quantization::process(QuantizedOutput& output) {
  figures_.assign(work_.blocks.size(), {});
  skipped_.assign(work_.blocks.size(), false);
  blocks_left_.assign(work_.plans.size(), 0);
  for (std::size_t i = 0; i < work_.blocks.size(); ++i) {
    skipped_[i] = output.has(i);
    ++blocks_left_[work_.blocks[i].tensor];
    total_ += work_.blocks[i].rows * source_row_bytes(work_.blocks[i].tensor);
  }
  std::vector<Buffers> buffers(threads_);
  parallel_for(work_.blocks.size(), threads_, [&](unsigned worker, std::size_t i) {
    const bool goes_on = note(process_block(output, i, buffers[worker]), i);
    if (!goes_on) output.stop();
    return goes_on;
  });
  if (error_) return std::unexpected(std::move(*error_));
  return {};
}

std::vector<std::string> Quantization::warnings() const {
  std::vector<std::string> warnings;
  const QuantizeConfig& config = options_.config;
  if (config.enable_time_aware) {
    warnings.push_back(fmt::format(
        "enable_time_aware has no effect without statistics of activations: 1 time group instead of {}", config.num_time_groups));
  }
  if (config.target_model_size_mb) {
    warnings.push_back(fmt::format("target_model_size_mb {} has no effect without statistics of activations: bits are as planned",
                                   *config.target_model_size_mb));
  }
  if (config.format == QuantizeFormat::kParquet &&
      std::ranges::find(work_.companions, kParquetMetadataFile, &Companion::name) != work_.companions.end()) {
    warnings.push_back(fmt::format("the model's {} is left out: the format has its own", kParquetMetadataFile));
  }
  return warnings;
}

QuantizeReport Quantization::report() const {
  QuantizeReport report{.source_bytes = work_.model.file_size(), .modality = work_.modality, .warnings = warnings()};
  std::size_t block = 0;
  for (std::size_t i = 0; i < work_.plans.size(); ++i) {
    QualitySums sums;
    for (; block < work_.blocks.size() && work_.blocks[block].tensor == i; ++block) sums.add(figures_[block]);
    if (!work_.is_quantized(i)) {
      ++report.kept;
      continue;
    }
    const TensorInfo& tensor = work_.model.tensors()[i];
    const RowFormat& format = work_.formats[i];
    report.layers.push_back({.name = std::string(tensor.name),
                             .dtype = tensor.dtype,
                             .shape = {tensor.shape.begin(), tensor.shape.end()},
                             .bits = format.bits,
                             .group_size = format.group_size,
                             .parameters = tensor.elements(),
                             .bytes = work_.plans[i].rows * format.stored_bytes(),
                             .planned_bits = planned_bits_[i],
                             .quality = quality_of(sums)});
  }
  summarize_layers(report, options_.config.min_accuracy);
  return report;
}

// Blocks that an earlier run wrote are compared as they are on the disk.
Result<void> Quantization::measure_skipped(const std::string& directory) {
  if (std::ranges::find(skipped_, true) == skipped_.end()) return {};
  const auto written = open_quantized(directory);
  if (!written) return std::unexpected(written.error());
  std::vector<Buffers> buffers(threads_);
  parallel_for(work_.blocks.size(), threads_, [&](unsigned worker, std::size_t i) {
    const TensorBlock& block = work_.blocks[i];
    if (!skipped_[i] || !work_.is_quantized(block.tensor)) return true;
    Buffers& own = buffers[worker];
    const TensorInfo& tensor = work_.model.tensors()[block.tensor];
    auto read = read_block(block, source_row_bytes(block.tensor), own.in);
    if (read) read = (*written)->read_rows(tensor.name, block.first_row, own.rows(work_.formats[block.tensor], block.rows));
    if (read) {
      figures_[i] = compare_rows(work_.formats[block.tensor], tensor.dtype, own.in, own.packed, own.scales, own.offsets);
    }
    const std::scoped_lock lock(mutex_);
    if (!read && !error_) error_ = std::move(read.error());
    return !error_;
  });
  if (error_) return std::unexpected(std::move(*error_));
  return {};
}

// What makes two runs the same work: threads and memory do not change a byte.
std::string Quantization::make_key() const {
  QuantizeConfig config = options_.config;
  config.num_threads = 0;
  config.max_memory_limit_mb = 0;
  std::string text = fmt::format("1\n{}\n{}\n{}\n", to_yaml(config), name(work_.modality), files_json(work_.model));
  for (const TensorInfo& tensor : work_.model.tensors()) {
    text += fmt::format("{}\n{} {} {}\n", tensor.name, name(tensor.dtype), to_string(tensor.shape), tensor.begin);
  }
  return hash_of(text);
}

// An output that is older than what it was made of was made of something else; one that is damaged is made again.
bool Quantization::is_finished(const std::string& directory) const {
  const bool is_mlx = options_.config.format == QuantizeFormat::kMlx;
  if ((is_mlx ? finished_mlx_key(directory) : finished_parquet_key(directory)) != work_.key) return false;
  if (!open_quantized(directory)) return false;
  // By the time of change, which unlike that of the last write nobody can set back.
  struct stat made{};
  const std::string last = fmt::format("{}/{}", directory, is_mlx ? "model.safetensors.index.json" : kParquetMetadataFile);
  if (::stat(last.c_str(), &made) != 0) return false;
  return std::ranges::all_of(work_.model.files(), [&](const ModelFile& file) {
    struct stat source{};
    return ::stat(file.path.c_str(), &source) == 0 &&
           std::pair(source.st_ctim.tv_sec, source.st_ctim.tv_nsec) <= std::pair(made.st_ctim.tv_sec, made.st_ctim.tv_nsec);
  });
}

Result<QuantizeReport> Quantization::run(const std::string& directory) {
  const bool is_mlx = options_.config.format == QuantizeFormat::kMlx;
  if (auto prepared = prepare(); !prepared) return std::unexpected(prepared.error());
  work_.key = make_key();
  const auto files = describe_files(work_.model);
  if (!files) return std::unexpected(files.error());
  work_.resume_key = hash_of(work_.key + *files);
  work_.source_json = files_json(work_.model);
  if (options_.resume && is_finished(directory)) {
    remove_leftovers(directory);
    return QuantizeReport{.source_bytes = work_.model.file_size(), .modality = work_.modality, .was_done = true};
  }
  if (auto raised = raise_bits(); !raised) return std::unexpected(raised.error());

  const auto output = is_mlx ? create_mlx_output(directory, work_, options_.sync, options_.resume)
                             : create_parquet_output(directory, work_, options_.sync, options_.resume);
  if (!output) return std::unexpected(output.error());
  if (auto processed = process(**output); !processed) return std::unexpected(processed.error());
  if (auto committed = (*output)->commit(); !committed) return std::unexpected(committed.error());
  if (auto measured = measure_skipped(directory); !measured) return std::unexpected(measured.error());

  QuantizeReport done = report();
  for (const QuantizedOutput::File& file : (*output)->files()) {
    done.files.push_back(file.path);
    done.bytes += file.bytes;
  }
  return done;
}

}  // namespace

Result<QuantizeReport> quantize_model(const Model& model, const std::string& directory, const QuantizeOptions& options) {
  if (auto checked = validate(options.config); !checked) return std::unexpected(checked.error());
  for (const ModelFile& file : model.files()) {
    std::error_code different;
    const fs::path folder = fs::path(file.path).parent_path();
    if (!fs::equivalent(folder.empty() ? "." : folder, directory, different) || different) continue;
    return fail(Errc::kInvalidArgument, "{}: is where the model is read from, and quantizing cannot be undone: name another",
                escape(directory));
  }
  return Quantization(model, options).run(directory);
}

}  // namespace ballast
