#include <ballast/convert_model.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <mutex>

#include <ballast/convert.h>

#include "base/block_loop.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "convert/nonfinite.h"
#include "format/safetensors/layout.h"
#include "jobs/companions.h"
#include "jobs/convert/quantized_input.h"
#include "jobs/convert/selection.h"
#include "jobs/lora/merge.h"
#include "model/identity.h"
#include "model/sink.h"
#include "model/state.h"
#include "output/occupied.h"
#include "scheme/declared.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

// Bytes to copy unchanged, possibly of several tensors.
struct Copy {
  std::uint32_t from_file;
  std::uint64_t from;
  TensorWriter::Place to;
  std::uint64_t bytes;
};

// A range of a tensor's values.
struct Block {
  std::size_t tensor;
  std::uint64_t first;
  std::uint64_t count;
};

// The values that a conversion changed.
struct Damage {
  ConversionLoss loss;
  std::uint64_t overflows = 0;  // floats that became infinite or NaN
  std::uint64_t specials = 0;   // NaN and infinities that became something else
  std::uint64_t nonfinite = 0;  // of a weight that is decoded to its new dtype
};

class Conversion {
 public:
  Conversion(const Model& model, const Selection& selection, TensorWriter& sink, const ConvertOptions& options)
      : model_(model),
        selection_(selection),
        sink_(sink),
        options_(options),
        threads_(thread_count(options.work.threads)),
        damage_(selection.targets.size()) {
    // Each thread has a block of input and one of output; half of the limit is for headers, names and text.
    constexpr std::uint64_t kSmallest = std::uint64_t{64} << 10;
    constexpr std::uint64_t kLargest = std::uint64_t{1} << 20;
    block_bytes_ = std::clamp(memory_limit(options.work) / 4 / threads_, kSmallest, kLargest);
    threads_ = static_cast<unsigned>(std::clamp<std::uint64_t>(memory_limit(options.work) / 4 / block_bytes_, 1, threads_));
  }

  Result<void> run() {
    plan();
    const bool any_order = selection_.targets.empty() || sink_.place(0).has_value();
    std::vector<std::pair<Bytes, Bytes>> buffers(threads_);
    BlockLoop loop{.work = options_.work, .total = total_, .threads = threads_};
    TRY(loop.run(
        copies_.size(), [&](unsigned, std::size_t i) { return copy(copies_[i]); },
        [&](std::size_t i) { return BlockDone{.bytes = copies_[i].bytes}; }));
    for (const Copy& copied : copies_) loop.before += copied.bytes;
    loop.threads = any_order ? threads_ : 1;
    return loop.run(
        blocks_.size(),
        [&](unsigned worker, std::size_t i) {
          auto& [in, out] = buffers[worker];
          if (!in) in = Bytes(allocate_bytes(block_bytes_));
          if (!out) out = Bytes(allocate_bytes(block_bytes_));
          return convert(blocks_[i], in.get(), out.get());
        },
        [&](std::size_t i) {
          return BlockDone{.bytes = bytes_of(blocks_[i]), .what = selection_.sources[blocks_[i].tensor]->name};
        });
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < damage_.size(); ++i) {
      const std::string tensor = quote(selection_.sources[i]->name);
      const std::string_view to = name(selection_.targets[i].dtype);
      if (const ConversionLoss& loss = damage_[i].loss; loss.count > 0) {
        found.push_back(fmt::format("tensor {}: {} of {} values do not fit {}, the first at index {}", tensor, loss.count,
                                    selection_.sources[i]->elements(), to, loss.first));
      }
      if (damage_[i].overflows > 0) {
        found.push_back(fmt::format("tensor {}: {} of {} values are out of range of {} and became infinite or NaN", tensor,
                                    damage_[i].overflows, selection_.sources[i]->elements(), to));
      }
      if (damage_[i].specials > 0) {
        found.push_back(fmt::format("tensor {}: {} of {} values are NaN or infinite, which {} cannot hold", tensor,
                                    damage_[i].specials, selection_.sources[i]->elements(), to));
      }
      if (damage_[i].nonfinite > 0) {
        found.push_back(fmt::format("tensor {}: {} of {} values are NaN or infinite as {}", tensor, damage_[i].nonfinite,
                                    selection_.sources[i]->elements(), to));
      }
    }
    return found;
  }

 private:
  std::uint64_t bytes_of(const Block& block) const { return block.count * bits(selection_.targets[block.tensor].dtype) / 8; }

  void plan() {
    // What is decoded on reading is no cheaper to copy.
    const bool has_bytes = model_.format() == Format::kSafetensors && !ModelAccess::decoded(model_);
    for (std::size_t i = 0; i < selection_.targets.size(); ++i) {
      const TensorInfo& from = *selection_.sources[i];
      const TensorSpec& to = selection_.targets[i];
      const auto place = sink_.place(i);
      if (from.dtype == to.dtype && place && has_bytes) {
        plan_copy({.from_file = from.file,
                   .from = model_.files()[from.file].data_start + from.begin,
                   .to = *place,
                   .bytes = from.bytes()});
        continue;
      }
      const std::uint64_t most = most_in_block(from, to.dtype);
      const std::uint64_t elements = from.elements();
      for (std::uint64_t at = 0; at < elements; at += most) {
        blocks_.push_back({.tensor = i, .first = at, .count = std::min(most, elements - at)});
      }
    }
    for (const Copy& copy : copies_) total_ += copy.bytes;
    for (const Block& block : blocks_) total_ += bytes_of(block);
    split_copies();
  }

  // Blocks are whole bytes in both dtypes, and whole rows if these are short: weights are decoded row by row.
  std::uint64_t most_in_block(const TensorInfo& from, DType to) const {
    const std::uint64_t widest = std::max(bits(from.dtype), bits(to));
    const std::uint64_t most = block_bytes_ * 8 / widest / 8 * 8;
    const std::uint64_t row = from.shape.empty() ? 1 : from.shape.back();
    const bool has_short_rows = bits(from.dtype) >= 8 && bits(to) >= 8 && row > 0 && row <= most;
    return has_short_rows ? most - most % row : most;
  }

  // Joins copies that are adjacent in both files.
  void plan_copy(const Copy& copy) {
    if (copy.bytes == 0) return;
    if (!copies_.empty()) {
      Copy& last = copies_.back();
      const bool continues = last.from_file == copy.from_file && last.from + last.bytes == copy.from &&
                             last.to.file == copy.to.file && last.to.offset + last.bytes == copy.to.offset;
      if (continues) {
        last.bytes += copy.bytes;
        return;
      }
    }
    copies_.push_back(copy);
  }

  void split_copies() {
    constexpr std::uint64_t kMost = std::uint64_t{16} << 20;
    std::vector<Copy> pieces;
    for (Copy copy : copies_) {
      for (; copy.bytes > kMost; copy.bytes -= kMost, copy.from += kMost, copy.to.offset += kMost) {
        pieces.push_back(copy);
        pieces.back().bytes = kMost;
      }
      pieces.push_back(copy);
    }
    copies_ = std::move(pieces);
  }

  Result<void> copy(const Copy& copy) {
    if (sink_.skip(copy.to, copy.bytes)) return {};
    auto copied = sink_.copy(copy.to, ModelAccess::source(model_, copy.from_file), copy.from, copy.bytes);
    if (!copied && copied.error().code != Errc::kWrite)
      return fail_at(escape(model_.files()[copy.from_file].path), copied.error());
    return copied;
  }

  Result<void> convert(const Block& block, std::byte* in, std::byte* out) {
    const TensorInfo& from = *selection_.sources[block.tensor];
    const DType to = selection_.targets[block.tensor].dtype;
    if (auto place = sink_.place(block.tensor)) {
      place->offset += block.first * bits(to) / 8;
      if (sink_.skip(*place, block.count * bits(to) / 8)) return {};
    }
    const std::span<std::byte> source(in, block.count * bits(from.dtype) / 8);
    TRY(model_.read_into(from.name, block.first * bits(from.dtype) / 8, source));
    if (from.dtype == to) {
      const auto& decoded = ModelAccess::decoded(model_);
      if (decoded && decoded->names.contains(from.name)) {
        TRY(record(block, {.loss = {}, .nonfinite = count_nonfinite(to, source)}));
      }
      return sink_.write(block.tensor, block.first * bits(to) / 8, source);
    }
    const std::span<std::byte> target(out, block.count * bits(to) / 8);
    const auto loss = convert_values(from.dtype, source, to, target);
    if (!loss) return fail_at(fmt::format("tensor {}", quote(from.name)), loss.error());
    Damage damage{.loss = *loss};
    if (info(from.dtype).kind == NumberKind::kFloat && info(to).kind == NumberKind::kFloat) {
      const std::uint64_t before = count_nonfinite(from.dtype, source);
      const std::uint64_t after = count_nonfinite(to, target);
      damage.overflows = after - std::min(before, after);
      damage.specials = before - std::min(before, after);
    }
    TRY(record(block, damage));
    return sink_.write(block.tensor, block.first * bits(to) / 8, target);
  }

  Result<void> record(const Block& block, const Damage& done) {
    const ConversionLoss& loss = done.loss;
    if (loss.count == 0 && done.overflows == 0 && done.specials == 0 && done.nonfinite == 0) return {};
    const TensorInfo& from = *selection_.sources[block.tensor];
    if (loss.count > 0 && options_.on_loss == OnLoss::kRefuse) {
      return fail(Errc::kUnsupported, "{}: tensor {}: value {} of {} does not fit {}; set allow_loss to convert anyway",
                  escape(model_.path()), quote(from.name), block.first + loss.first, from.elements(),
                  name(selection_.targets[block.tensor].dtype));
    }
    const std::scoped_lock lock(mutex_);
    Damage& damage = damage_[block.tensor];
    if (loss.count > 0 && (damage.loss.count == 0 || block.first + loss.first < damage.loss.first)) {
      damage.loss.first = block.first + loss.first;
    }
    damage.loss.count += loss.count;
    damage.overflows += done.overflows;
    damage.specials += done.specials;
    damage.nonfinite += done.nonfinite;
    return {};
  }

  const Model& model_;
  const Selection& selection_;
  TensorWriter& sink_;
  const ConvertOptions& options_;
  unsigned threads_;
  std::uint64_t block_bytes_;
  std::vector<Copy> copies_;
  std::vector<Block> blocks_;
  std::mutex mutex_;
  std::vector<Damage> damage_;
  std::uint64_t total_ = 0;
};

// Identifies the work: the input files, as they are now, and the conversion of each tensor.
Result<std::string> resume_key(const Model& model, const Selection& selection, const SinkOptions& options) {
  std::string text = fmt::format("1\n{}\n{}\n", options.max_shard_bytes, safetensors::metadata_json(options.metadata));
  const auto files = TRY(describe_files(model));
  text += files;
  for (std::size_t i = 0; i < selection.targets.size(); ++i) {
    text += fmt::format("{}\n{}\n{}\n", selection.sources[i]->name, selection.targets[i].name, name(selection.targets[i].dtype));
  }
  return sha256(*open_memory(std::as_bytes(std::span(text))));
}

// The names of the output, and those that the model's own directory has already if the output replaces it.
std::vector<std::string> names_in(const std::string& path, const Model& model, const Companions& companions,
                                  std::string_view stem) {
  std::vector<std::string> names = names_of(companions, stem);
  std::error_code different;
  if (std::filesystem::equivalent(model.directory(), path, different) && !different) {
    std::ranges::copy(companions.not_copied, std::back_inserter(names));
    for (const std::string& file : ModelAccess::stored_files(model)) names.push_back(file_name(file));
  }
  return names;
}

void describe_decoded(const Decoded& decoded, const ConvertOptions& options, ConvertReport& report) {
  report.notes.insert(report.notes.end(), decoded.notes.begin(), decoded.notes.end());
  if (decoded.scheme.empty()) return;
  const bool is_of_one_dtype = options.dtype && info(*options.dtype).kind == NumberKind::kFloat;
  report.warnings.push_back(fmt::format("{} weights were dequantized to {}", decoded.scheme,
                                        is_of_one_dtype ? name(*options.dtype) : "their original dtypes"));
  if (auto left_out = describe_dropped(decoded.dropped); !left_out.empty()) report.warnings.push_back(std::move(left_out));
}

}  // namespace

Result<ConvertReport> convert_model(const Model& model, const std::string& path, const ConvertOptions& options) {
  if (!options.sink.metadata.empty()) {
    return fail(Errc::kInvalidArgument, "ConvertOptions::sink has metadata; set ConvertOptions::metadata instead");
  }
  SinkOptions sink_options = options.sink;
  const auto& decoded = ModelAccess::decoded(model);
  sink_options.metadata = options.metadata.value_or(model.metadata());
  auto selection = TRY(select_tensors(model, options));
  TRY(check_merged(model, options.loras));
  TRY(decoded ? check_decoded(model, path) : check_codes(model, selection, path, options));
  ConvertReport report{
      .tensors = selection.targets.size(), .notes = std::move(selection.notes), .warnings = std::move(selection.warnings)};
  for (std::size_t i = 0; i < report.tensors; ++i) {
    const bool is_decoded = decoded && decoded->names.contains(selection.sources[i]->name);
    if (is_decoded || selection.sources[i]->dtype != selection.targets[i].dtype) ++report.converted;
    report.data_bytes += safetensors::data_bytes(selection.targets[i]).value_or(0);
  }
  if (decoded) describe_decoded(*decoded, options, report);
  const std::vector<std::string> stored = ModelAccess::stored_files(model);
  const std::string stem = stem_of_files(stored);
  Companions companions;
  if (const Folder* const folder = ModelAccess::folder(model); folder != nullptr && !is_single_file(path)) {
    const bool has_new_dtype = report.converted > 0 || decoded;
    companions = TRY(find_companions(*folder, stored, has_new_dtype ? main_dtype(selection.targets) : std::string_view()));
    if (ModelAccess::is_dequantized(model)) TRY(drop_quantization(companions));
    if (std::ranges::none_of(model.tensors(), holds_codes)) leave_out_claims(companions);
  }
  if (!options.force) TRY(check_free(path, names_in(path, model, companions, stem), options.resume));
  const auto key = TRY(options.resume ? resume_key(model, selection, sink_options) : Result<std::string>());
  const auto sink = TRY(
      create_tensor_writer(path, selection.targets, sink_options,
                           {.stem = stem, .companions = companions.files, .resume_key = key, .threads = options.work.threads}));
  Conversion conversion(model, selection, *sink, options);
  ModelAccess::expect(model, std::views::transform(selection.sources, [](const TensorInfo* tensor) { return *tensor; }));
  TRY(conversion.run());
  TRY(sink->commit());

  std::ranges::move(conversion.warnings(), std::back_inserter(report.warnings));
  if (!companions.not_copied.empty()) report.notes.push_back(describe_not_copied(companions.not_copied));
  report.not_copied = std::move(companions.not_copied);
  for (const TensorWriter::File& file : sink->files()) report.files.push_back({.path = file.path, .bytes = file.bytes});
  return report;
}

}  // namespace ballast
