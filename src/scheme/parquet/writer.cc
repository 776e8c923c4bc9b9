#include "scheme/parquet/writer.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "format/parquet/parquet.h"
#include "format/safetensors/layout.h"
#include "output/journal.h"
#include "scheme/parquet/block.h"
#include "scheme/parquet/metadata.h"
#include "source/sha256.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostPerPart = std::uint64_t{256} << 20;

// Blocks of one file, by number.
struct Part {
  std::string name;
  std::size_t first;
  std::size_t end;
  std::size_t file = 0;  // of the output
  std::uint64_t bytes = 0;
  std::string sha256;
  bool done = false;
};

std::uint64_t block_bytes(const OutputPlan& plan, const TensorBlock& block) {
  const WeightLayout& weight = plan.weights[block.tensor];
  return block.rows * (weight.is_quantized() ? weight.format().stored_bytes() : weight.columns);
}

// Assigns blocks to files up to the size limit; a larger block has its own file.
std::vector<Part> plan_parts(const OutputPlan& plan) {
  std::vector<Part> parts;
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < plan.blocks.size(); ++i) {
    const std::uint64_t bytes = block_bytes(plan, plan.blocks[i]);
    if (parts.empty() || filled + bytes > kMostPerPart) {
      parts.push_back({.name = {}, .first = i, .end = i});
      filled = 0;
    }
    filled += bytes;
    parts.back().end = i + 1;
  }
  if (parts.empty()) parts.push_back({.name = {}, .first = 0, .end = 0});
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].name = fmt::format("model-{:05}-of-{:05}.parquet", i + 1, parts.size());
  return parts;
}

class ParquetWriter final : public QuantizedWriter {
 public:
  ParquetWriter(const OutputPlan& plan, const parquet::Library& library, Output output, bool sync)
      : plan_(plan), library_(library), output_(std::move(output)), parts_(plan_parts(plan)), sync_(sync) {}

  Result<void> open() {
    const bool keep = !plan_.resume_key.empty();
    if (keep) {
      TRY(output_.keep_incomplete());
    }
    for (Part& part : parts_) {
      const auto file = TRY(keep ? output_.add_partial(part.name) : output_.add(part.name));
      part.file = file;
    }
    if (keep) {
      TRY(open_journal());
    }
    if (plan_.blocks.empty()) {
      TRY(start(parts_.front()));
      return finish(parts_.front());
    }
    return go_to(0);
  }

  bool has(std::size_t block) override { return part_of(block).done; }

  Result<void> write(std::size_t block, const CodedBlock& coded) override {
    parquet::Block row = describe_block(plan_, plan_.blocks[block]);
    if (!coded.time_bias.empty()) row.time_aware_quant_json = time_aware_json(plan_, coded);
    return append(block, row, coded.rows.packed, coded.rows.scales, coded.rows.offsets);
  }

  Result<void> write_unquantized(std::size_t block, std::span<const std::byte> bytes) override {
    return append(block, describe_block(plan_, plan_.blocks[block]), bytes, {}, {});
  }

  void stop() override {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    turn_.notify_all();
  }

  Result<void> commit() override {
    if (next_ != plan_.blocks.size()) {
      return fail(Errc::kInvalidArgument, "only {} of {} blocks were written", next_, plan_.blocks.size());
    }
    for (const Companion& companion : plan_.companions) {
      if (companion.name == kParquetMetadataFile) continue;
      TRY(output_.add(companion));
    }
    TRY(output_.add({.name = std::string(kParquetMetadataFile), .path = {}, .text = metadata()}));
    journal_.reset();
    return output_.commit(sync_);
  }

  std::vector<File> files() const override {
    std::vector<File> files;
    for (const Part& part : parts_) files.push_back({.path = output_[part.file].path(), .bytes = part.bytes});
    return files;
  }

 private:
  Part& part_of(std::size_t block) {
    return *std::ranges::find_if(parts_, [&](const Part& part) { return block < part.end; });
  }

  // Finds the files that an earlier run has finished.
  Result<void> open_journal() {
    auto journal = TRY(Journal::open(output_.journal_path(), plan_.resume_key, [] { return Result<void>(); }));
    journal_.emplace(std::move(journal));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto size = TRY(output_[parts_[i].file].size());
      if (size == 0 || !journal_->has(i, 0, size)) continue;
      const auto source = open_file(output_[parts_[i].file].partial_path(), Access::kPread);
      const auto sum = source ? sha256(**source) : std::unexpected(source.error());
      if (!sum) continue;  // it is made again
      parts_[i].done = true;
      parts_[i].bytes = size;
      parts_[i].sha256 = *sum;
    }
    return {};
  }

  Result<void> start(Part& part) {
    OutputFile& file = output_[part.file];
    TRY(file.clear());
    hash_.emplace();
    auto writer = library_.create_writer(
        [this, &part, &file](std::span<const std::byte> bytes) -> Result<void> {
          TRY(file.write_at(part.bytes, bytes));
          part.bytes += bytes.size();
          hash_->add(bytes);
          return {};
        },
        {});
    if (!writer) return fail_at(escape(file.path()), writer.error());
    writer_ = std::move(*writer);
    return {};
  }

  Result<void> finish(Part& part) {
    TRY(writer_->finish());
    writer_.reset();
    part.sha256 = hash_->hex();
    part.done = true;
    if (!journal_) return {};
    TRY(output_[part.file].sync());
    TRY(journal_->add(static_cast<std::size_t>(&part - parts_.data()), 0, part.bytes));
    return journal_->flush();
  }

  // Advances to a block, past files of an earlier run.
  Result<void> go_to(std::size_t block) {
    while (block < plan_.blocks.size() && part_of(block).done) block = part_of(block).end;
    next_ = block;
    turn_.notify_all();
    return next_ == plan_.blocks.size() || writer_ ? Result<void>() : start(part_of(next_));
  }

  Result<void> append(std::size_t block, const parquet::Block& row, std::span<const std::byte> data,
                      std::span<const float> scales, std::span<const float> zero_points) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return stopped_ || next_ == block; });
    if (stopped_) return {};
    Part& part = part_of(block);
    TRY(writer_->append(row, data, scales, zero_points));
    if (block + 1 == part.end) {
      TRY(finish(part));
    }
    return go_to(block + 1);
  }

  std::string source_metadata() const {
    return plan_.metadata.empty() ? "" : fmt::format("\n  \"metadata\": {},", safetensors::metadata_json(plan_.metadata));
  }

  std::string metadata() const {
    std::uint64_t bytes = 0;
    std::string parts;
    for (const Part& part : parts_) {
      bytes += part.bytes;
      parts += fmt::format("{}\n    {{\"file\": \"{}\", \"bytes\": {}, \"sha256\": \"{}\"}}", parts.empty() ? "" : ",", part.name,
                           part.bytes, part.sha256);
    }
    const auto quantized = std::ranges::count_if(plan_.weights, &WeightLayout::is_quantized);
    return fmt::format(R"({{
  "format": "{}",
  "version": 2,
  "modality": {},
  "config": {},
  "source": {},{}
  "key": "{}",
  "time_boundaries": {},
  "tensor_count": {},
  "quantized_tensors": {},
  "parameter_count": {},
  "source_bytes": {},
  "bytes": {},
  "parts": [{}
  ]
}}
)",
                       kParquetFormat, plan_.modality.empty() ? "null" : fmt::format("\"{}\"", plan_.modality), plan_.settings,
                       plan_.source, source_metadata(), plan_.key, boundaries_json(plan_), plan_.weights.size(), quantized,
                       plan_.parameter_count(), plan_.source_bytes, bytes, parts);
  }

  const OutputPlan& plan_;
  const parquet::Library& library_;
  Output output_;
  std::vector<Part> parts_;
  bool sync_;
  std::optional<Journal> journal_;
  std::mutex mutex_;
  std::condition_variable turn_;
  std::size_t next_ = 0;  // the block that may come
  bool stopped_ = false;
  std::unique_ptr<parquet::Writer> writer_;
  std::optional<Sha256> hash_;
};

}  // namespace

Result<std::unique_ptr<QuantizedWriter>> create_parquet_writer(const std::string& directory, const OutputPlan& plan, bool sync) {
  const auto library = TRY(parquet::load_library());
  auto files = TRY(Output::directory(directory));
  auto writer = std::make_unique<ParquetWriter>(plan, *library, std::move(files), sync);
  TRY(writer->open());
  return writer;
}

}  // namespace ballast
