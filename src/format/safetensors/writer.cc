#include "format/safetensors/writer.h"

#include <atomic>
#include <optional>

#include <unistd.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "format/safetensors/shards.h"
#include "output/journal.h"

namespace ballast::safetensors {
namespace {

class Writer final : public TensorWriter {
 public:
  Writer(Output output, bool sync) : output_(std::move(output)), sync_(sync) {}

  ~Writer() override {
    const auto flushed = journal_ ? journal_->flush() : Result<void>();
    (void)flushed;  // what is not recorded is written again by the next run
  }

  Result<void> keep_incomplete() {
    is_partial_ = true;
    return output_.keep_incomplete();
  }

  // Loads what an earlier run has done. Called after all files are added.
  Result<void> open_journal(const std::string& key) {
    if (!resumable_) ::unlink(output_.journal_path().c_str());
    const auto sync = [this]() -> Result<void> {
      for (std::size_t i = 0; i < files_.size(); ++i) {
        TRY(output_[i].sync());
      }
      return {};
    };
    auto journal = TRY(Journal::open(output_.journal_path(), key, sync));
    journal_.emplace(std::move(journal));
    return {};
  }

  // Adds a file of tensors and writes its header.
  Result<void> add_tensors(std::string_view name, std::span<const TensorSpec> tensors, const Metadata& metadata,
                           bool keep_empty_metadata = false) {
    const auto added = TRY(is_partial_ ? output_.add_partial(name) : output_.add(name));
    OutputFile& file = output_[added];
    const auto layout = make_layout(tensors, metadata, keep_empty_metadata);
    if (!layout) return fail_at(escape(file.path()), layout.error());
    const auto size = TRY(file.size());
    if (size != layout->file_size) {
      resumable_ = false;
      TRY(file.clear());
    }
    TRY(file.reserve(layout->file_size));
    TRY(file.write_at(0, as_bytes(layout->header)));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      places_.push_back({.file = added, .offset = layout->offsets[i]});
      sizes_.push_back(*data_bytes(tensors[i]));
    }
    missing_ += layout->file_size - layout->header.size();
    files_.push_back({.path = file.path(), .bytes = layout->file_size});
    return {};
  }

  Result<void> add_companion(const Companion& companion) { return output_.add(companion); }

  Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) override {
    TRY(check_piece(sizes_, tensor, offset, bytes.size()));
    const auto [file, start] = places_[tensor];
    TRY(output_[file].write_at(start + offset, bytes));
    missing_ -= bytes.size();
    return journal_ ? journal_->add(file, start + offset, start + offset + bytes.size()) : Result<void>();
  }

  std::optional<Place> place(std::size_t tensor) const override { return places_[tensor]; }

  Result<void> copy(Place to, const Source& source, std::uint64_t from, std::uint64_t length) override {
    TRY(output_[to.file].copy_from(source, from, to.offset, length));
    missing_ -= length;
    return journal_ ? journal_->add(to.file, to.offset, to.offset + length) : Result<void>();
  }

  bool has(Place to, std::uint64_t length) const override {
    return journal_ && journal_->has(to.file, to.offset, to.offset + length);
  }

  bool skip(Place to, std::uint64_t length) override {
    const bool done = has(to, length);
    if (done) missing_ -= length;
    return done;
  }

  std::vector<File> files() const override { return files_; }
  std::uint64_t missing_bytes() const { return missing_; }

  Result<void> commit() override {
    if (const std::uint64_t missing = missing_; missing != 0) {
      return fail(Errc::kInvalidArgument, "tensors are incomplete: {} bytes were not written", missing);
    }
    journal_.reset();
    return output_.commit(sync_);
  }

 private:
  Output output_;
  std::optional<Journal> journal_;
  bool is_partial_ = false;
  bool resumable_ = true;  // all partial files have the expected size
  std::vector<File> files_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> sizes_;
  std::atomic<std::uint64_t> missing_ = 0;  // bytes not yet written
  bool sync_;
};

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_writer(Output output, std::span<const TensorSpec> tensors,
                                                    const TensorWriterOptions& options) {
  const bool is_directory = output.is_directory();
  const auto shards = TRY(plan_shards(tensors, options.metadata, is_directory ? options.max_shard_bytes : 0));
  auto writer = std::make_unique<Writer>(std::move(output), options.sync);
  if (!options.resume_key.empty()) {
    TRY(writer->keep_incomplete());
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto own = tensors.subspan(next, shards[i].size());
    TRY(writer->add_tensors(shard_name(options.stem, i, shards.size()), own, options.metadata, options.keep_empty_metadata));
    next += own.size();
  }
  const std::uint64_t weights = writer->missing_bytes();
  for (const SideFile& side : options.side_files) {
    TRY(writer->add_tensors(side.name, side.tensors, side.metadata));
  }
  if (!options.resume_key.empty()) {
    TRY(writer->open_journal(options.resume_key));
  }
  for (const Companion& companion : options.companions) {
    TRY(writer->add_companion(companion));
  }
  if (is_directory && !tensors.empty() && (shards.size() > 1 || !options.index_metadata.empty())) {
    const Companion index{.name = options.stem + std::string(kIndexSuffix),
                          .text = index_text(options.stem, tensors, shards, weights, options.index_metadata)};
    TRY(writer->add_companion(index));
  }
  return writer;
}

}  // namespace ballast::safetensors
