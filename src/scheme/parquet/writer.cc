// Parquet V2 Extended: see docs/formats/parquet-v2-extended.md.

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "format/parquet/parquet.h"
#include "model/locate.h"
#include "plan/config_fields.h"
#include "scheme/parquet/metadata.h"
#include "output/journal.h"
#include "scheme/parquet/block.h"
#include "scheme/writer.h"
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

std::uint64_t block_bytes(const QuantizeWork& work, const TensorBlock& block) {
  const RowFormat& format = work.formats[block.tensor];
  return block.rows * (work.is_quantized(block.tensor) ? format.stored_bytes() : format.columns);
}

// As many blocks to a file as it takes; one that is larger has a file of its own.
std::vector<Part> plan_parts(const QuantizeWork& work) {
  std::vector<Part> parts;
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < work.blocks.size(); ++i) {
    const std::uint64_t bytes = block_bytes(work, work.blocks[i]);
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

// A word of a config as JSON: numbers and true, false as they are, nothing as null.
void append_word(std::string& text, const std::string& word) {
  const bool is_plain =
      word == "true" || word == "false" || (!word.empty() && word.find_first_not_of("0123456789.") == std::string::npos);
  if (word.empty()) {
    text += "null";
  } else if (is_plain) {
    text += word;
  } else {
    append_json_string(word, text);
  }
}

std::string config_json(const QuantizeConfig& config) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    if (field.name == "num_threads" || field.name == "max_memory_limit_mb") continue;  // nothing in the files depends on them
    text += fmt::format("{}\n    \"{}\": ", text.empty() ? "{" : ",", field.name);
    const ConfigValue value = field.get(config);
    if (const auto* const word = std::get_if<std::string>(&value)) {
      append_word(text, *word);
    } else if (const auto* const list = std::get_if<std::vector<std::string>>(&value)) {
      text += '[';
      for (const std::string& each : *list) {
        if (&each != &list->front()) text += ", ";
        append_json_string(each, text);
      }
      text += ']';
    } else {
      const auto& pairs = std::get<std::map<std::string, std::string>>(value);
      text += '{';
      for (const auto& [name, each] : pairs) {
        if (name != pairs.begin()->first) text += ", ";
        append_json_string(name, text);
        text += ": ";
        append_word(text, each);
      }
      text += '}';
    }
  }
  return text + "\n  }";
}

class ParquetOutput final : public QuantizedOutput {
 public:
  ParquetOutput(const QuantizeWork& work, const parquet::Library& library, Output output, bool sync)
      : work_(work), library_(library), output_(std::move(output)), parts_(plan_parts(work)), sync_(sync) {}

  Result<void> open(bool keep) {
    if (keep) {
      if (auto kept = output_.keep_incomplete(); !kept) return kept;
    }
    for (Part& part : parts_) {
      const auto file = keep ? output_.add_kept(part.name) : output_.add(part.name);
      if (!file) return std::unexpected(file.error());
      part.file = *file;
    }
    if (keep) {
      if (auto opened = open_journal(); !opened) return opened;
    }
    if (work_.blocks.empty()) {
      if (auto started = start(parts_.front()); !started) return started;
      return finish(parts_.front());
    }
    return go_to(0);
  }

  bool has(std::size_t block) override { return part_of(block).done; }

  Result<void> write(std::size_t block, const CodedBlock& coded) override {
    parquet::Block row = describe_block(work_, work_.blocks[block]);
    if (!coded.time_bias.empty()) row.time_aware_quant_json = time_aware_json(work_, coded);
    return append(block, row, coded.rows.packed, coded.rows.scales, coded.rows.offsets);
  }

  Result<void> write_kept(std::size_t block, std::span<const std::byte> bytes) override {
    return append(block, describe_block(work_, work_.blocks[block]), bytes, {}, {});
  }

  void stop() override {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    turn_.notify_all();
  }

  Result<void> commit() override {
    if (next_ != work_.blocks.size()) {
      return fail(Errc::kInvalidArgument, "{} of {} blocks were written", next_, work_.blocks.size());
    }
    for (const Companion& companion : work_.companions) {
      if (companion.name == kParquetMetadataFile) continue;
      if (auto added = output_.add(companion); !added) return added;
    }
    if (auto added = output_.add({.name = std::string(kParquetMetadataFile), .path = {}, .text = metadata()}); !added)
      return added;
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

  // Finds out which files an earlier run has finished.
  Result<void> open_journal() {
    auto journal = Journal::open(output_.journal_path(), work_.resume_key, [] { return Result<void>(); });
    if (!journal) return std::unexpected(journal.error());
    journal_.emplace(std::move(*journal));
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const auto size = output_[parts_[i].file].size();
      if (!size) return std::unexpected(size.error());
      if (*size == 0 || !journal_->has(i, 0, *size)) continue;
      const auto source = open_file(output_[parts_[i].file].kept_path(), Access::kPread);
      const auto sum = source ? sha256(**source) : std::unexpected(source.error());
      if (!sum) continue;  // it is made again
      parts_[i].done = true;
      parts_[i].bytes = *size;
      parts_[i].sha256 = *sum;
    }
    return {};
  }

  Result<void> start(Part& part) {
    OutputFile& file = output_[part.file];
    if (auto cleared = file.clear(); !cleared) return cleared;
    hash_.emplace();
    auto writer = library_.create_writer(
        [this, &part, &file](std::span<const std::byte> bytes) -> Result<void> {
          if (auto written = file.write_at(part.bytes, bytes); !written) return written;
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
    if (auto finished = writer_->finish(); !finished) return finished;
    writer_.reset();
    part.sha256 = hash_->hex();
    part.done = true;
    if (!journal_) return {};
    if (auto synced = output_[part.file].sync(); !synced) return synced;
    if (auto added = journal_->add(static_cast<std::size_t>(&part - parts_.data()), 0, part.bytes); !added) return added;
    return journal_->flush();
  }

  // On to a block, past files that are there already.
  Result<void> go_to(std::size_t block) {
    while (block < work_.blocks.size() && part_of(block).done) block = part_of(block).end;
    next_ = block;
    turn_.notify_all();
    return next_ == work_.blocks.size() || writer_ ? Result<void>() : start(part_of(next_));
  }

  Result<void> append(std::size_t block, const parquet::Block& row, std::span<const std::byte> data,
                      std::span<const float> scales, std::span<const float> zero_points) {
    std::unique_lock lock(mutex_);
    turn_.wait(lock, [&] { return stopped_ || next_ == block; });
    if (stopped_) return {};
    Part& part = part_of(block);
    if (auto appended = writer_->append(row, data, scales, zero_points); !appended) return appended;
    if (block + 1 == part.end) {
      if (auto finished = finish(part); !finished) return finished;
    }
    return go_to(block + 1);
  }

  std::string metadata() const {
    std::uint64_t bytes = 0;
    std::string parts;
    for (const Part& part : parts_) {
      bytes += part.bytes;
      parts += fmt::format("{}\n    {{\"file\": \"{}\", \"bytes\": {}, \"sha256\": \"{}\"}}", parts.empty() ? "" : ",", part.name,
                           part.bytes, part.sha256);
    }
    const auto quantized = std::ranges::count_if(work_.plans, [](const LayerPlan& plan) { return plan.bits != 0; });
    return fmt::format(R"({{
  "format": "{}",
  "version": 2,
  "modality": {},
  "config": {},
  "source": {},
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
                       kParquetFormat,
                       work_.modality == Modality::kUnknown ? "null" : fmt::format("\"{}\"", name(work_.modality)),
                       config_json(work_.config), work_.source_json, work_.key, boundaries_json(work_), work_.plans.size(),
                       quantized, work_.model.parameter_count(), work_.model.file_size(), bytes, parts);
  }

  const QuantizeWork& work_;
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

Result<std::unique_ptr<QuantizedOutput>> create_parquet_output(const std::string& directory, const QuantizeWork& work, bool sync,
                                                               bool keep) {
  const auto library = parquet::load_library();
  if (!library) return std::unexpected(library.error());
  auto files = Output::directory(directory);
  if (!files) return std::unexpected(files.error());
  auto output = std::make_unique<ParquetOutput>(work, **library, std::move(*files), sync);
  if (auto opened = output->open(keep); !opened) return std::unexpected(opened.error());
  return output;
}

std::string finished_parquet_key(const std::string& directory) {
  const auto text = read_text(fmt::format("{}/{}", directory, kParquetMetadataFile));
  const auto metadata = text ? parse_parquet_metadata(*text) : std::unexpected(text.error());
  return metadata ? metadata->key : "";
}

}  // namespace ballast
