#include "format/safetensors/writer.h"

#include <atomic>
#include <optional>

#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "format/safetensors/layout.h"
#include "output/journal.h"
#include "format/safetensors/shards.h"

namespace ballast {
namespace {

class SafetensorsSink final : public FileSink {
 public:
  SafetensorsSink(Output output, bool sync) : output_(std::move(output)), sync_(sync) {}

  ~SafetensorsSink() override {
    const auto flushed = journal_ ? journal_->flush() : Result<void>();
    (void)flushed;  // what is lost here is done again
  }

  Result<void> keep_incomplete() {
    kept_ = true;
    return output_.keep_incomplete();
  }

  // Finds out what a run before this one has done; called when all files are added.
  Result<void> open_journal(const std::string& key) {
    if (!resumable_) ::unlink(output_.journal_path().c_str());
    const auto sync = [this]() -> Result<void> {
      for (std::size_t i = 0; i < files_.size(); ++i) {
        if (auto synced = output_[i].sync(); !synced) return synced;
      }
      return {};
    };
    auto journal = Journal::open(output_.journal_path(), key, sync);
    if (!journal) return std::unexpected(journal.error());
    journal_.emplace(std::move(*journal));
    return {};
  }

  // Adds a file of tensors, and writes its header.
  Result<void> add_tensors(std::string_view name, std::span<const TensorSpec> tensors, const Metadata& metadata,
                           bool keep_empty_metadata = false) {
    const auto added = kept_ ? output_.add_kept(name) : output_.add(name);
    if (!added) return std::unexpected(added.error());
    OutputFile& file = output_[*added];
    const auto layout = safetensors::make_layout(tensors, metadata, keep_empty_metadata);
    if (!layout) return fail_at(escape(file.path()), layout.error());
    const auto size = file.size();
    if (!size) return std::unexpected(size.error());
    if (*size != layout->file_size) {
      resumable_ = false;
      if (auto cleared = file.clear(); !cleared) return cleared;
    }
    if (auto reserved = file.reserve(layout->file_size); !reserved) return reserved;
    if (auto written = file.write_at(0, as_bytes(layout->header)); !written) return written;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      places_.push_back({.file = *added, .offset = layout->offsets[i]});
      sizes_.push_back(*safetensors::data_bytes(tensors[i]));
    }
    missing_ += layout->file_size - layout->header.size();
    files_.push_back({.path = file.path(), .bytes = layout->file_size});
    return {};
  }

  Result<void> add_companion(const Companion& companion) { return output_.add(companion); }

  Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) override {
    if (auto checked = check_piece(sizes_, tensor, offset, bytes.size()); !checked) return checked;
    const auto [file, start] = places_[tensor];
    if (auto written = output_[file].write_at(start + offset, bytes); !written) return written;
    missing_ -= bytes.size();
    return journal_ ? journal_->add(file, start + offset, start + offset + bytes.size()) : Result<void>();
  }

  std::optional<Place> place(std::size_t tensor) const override { return places_[tensor]; }

  Result<void> copy(Place to, const Source& source, std::uint64_t from, std::uint64_t length) override {
    if (auto copied = output_[to.file].copy_from(source, from, to.offset, length); !copied) return copied;
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
  std::uint64_t data_bytes() const { return missing_; }

  Result<void> commit() override {
    if (const std::uint64_t missing = missing_; missing != 0) {
      return fail(Errc::kInvalidArgument, "the tensors are not whole: {} bytes were not written", missing);
    }
    journal_.reset();
    return output_.commit(sync_);
  }

 private:
  Output output_;
  std::optional<Journal> journal_;
  bool kept_ = false;
  bool resumable_ = true;  // every file kept has the size that it should have
  std::vector<File> files_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> sizes_;
  std::atomic<std::uint64_t> missing_ = 0;  // bytes that have not come yet
  bool sync_;
};

}  // namespace

Result<std::unique_ptr<FileSink>> create_safetensors_sink(Output output, std::span<const TensorSpec> tensors,
                                                          const SinkOptions& options, const SinkExtras& extras) {
  const bool is_directory = output.is_directory();
  const auto shards = plan_shards(tensors, options.metadata, is_directory ? options.max_shard_bytes : 0);
  if (!shards) return std::unexpected(shards.error());
  auto sink = std::make_unique<SafetensorsSink>(std::move(output), options.sync);
  if (!extras.resume_key.empty()) {
    if (auto kept = sink->keep_incomplete(); !kept) return std::unexpected(kept.error());
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < shards->size(); ++i) {
    const auto own = tensors.subspan(next, (*shards)[i].size());
    if (auto added = sink->add_tensors(shard_name(i, shards->size()), own, options.metadata, options.keep_empty_metadata);
        !added) {
      return std::unexpected(added.error());
    }
    next += own.size();
  }
  const std::uint64_t weights = sink->data_bytes();
  for (const SideFile& side : extras.side_files) {
    if (auto added = sink->add_tensors(side.name, side.tensors, side.metadata); !added) return std::unexpected(added.error());
  }
  if (!extras.resume_key.empty()) {
    if (auto opened = sink->open_journal(extras.resume_key); !opened) return std::unexpected(opened.error());
  }
  for (const Companion& companion : extras.companions) {
    if (auto added = sink->add_companion(companion); !added) return std::unexpected(added.error());
  }
  if (is_directory && !tensors.empty() && (shards->size() > 1 || !extras.index_metadata.empty())) {
    const Companion index{.name = "model.safetensors.index.json",
                          .text = index_text(tensors, *shards, weights, extras.index_metadata)};
    if (auto added = sink->add_companion(index); !added) return std::unexpected(added.error());
  }
  return sink;
}

}  // namespace ballast
