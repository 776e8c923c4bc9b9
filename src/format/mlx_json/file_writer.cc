#include "format/mlx_json/file_writer.h"

#include <algorithm>
#include <string>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "format/mlx_json/values.h"
#include "format/mlx_json/writer.h"
#include "format/safetensors/layout.h"

namespace ballast::mlx_json {
namespace {

// Writes one document from start to end, so pieces must come in order.
class FileWriter final : public TensorWriter {
 public:
  FileWriter(Output output, std::vector<TensorSpec> tensors, std::vector<std::uint64_t> sizes, const TensorWriterOptions& options)
      : output_(std::move(output)),
        tensors_(std::move(tensors)),
        sizes_(std::move(sizes)),
        threads_(thread_count(options.threads)),
        sync_(options.sync) {
    append_document_begin(options.metadata, text_);
  }

  Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) override {
    TRY(check_piece(sizes_, tensor, offset, bytes.size()));
    if (bytes.empty()) return {};
    while (open_ < tensor && is_whole()) begin_next();
    if (open_ != tensor || offset != done_) {
      return fail(Errc::kInvalidArgument,
                  "MLX JSON must be written in order: expected byte {} of tensor index {}, got byte {} of tensor index {}", done_,
                  open_, offset, tensor);
    }
    if (bytes.size() % value_bytes() != 0) {
      return fail(Errc::kInvalidArgument, "{} bytes is not a whole number of {} values", bytes.size(),
                  name(tensors_[tensor].dtype));
    }
    if (done_ != 0) text_ += ',';
    done_ += bytes.size();
    return append(bytes);
  }

  std::optional<Place> place(std::size_t) const override { return std::nullopt; }
  Result<void> copy(Place, const Source&, std::uint64_t, std::uint64_t) override {
    return fail(Errc::kInvalidArgument, "MLX JSON stores text, so bytes cannot be copied into it");
  }
  bool has(Place, std::uint64_t) const override { return false; }
  bool skip(Place, std::uint64_t) override { return false; }
  std::vector<File> files() const override { return {{.path = output_[0].path(), .bytes = position_}}; }

  Result<void> commit() override {
    if (failed_) return fail(Errc::kInvalidArgument, "cannot commit because a write failed");
    while (open_ + 1 < tensors_.size() && is_whole()) begin_next();
    if (!is_whole()) {
      return fail(Errc::kInvalidArgument, "tensor {} is incomplete: {} of {} bytes were written", quote(tensors_[open_].name),
                  done_, sizes_[open_]);
    }
    if (!tensors_.empty()) append_tensor_end(text_);
    append_document_end(text_);
    TRY(flush());
    return output_.commit(sync_);
  }

  void begin_first() {
    if (!tensors_.empty()) begin();
  }

 private:
  std::size_t value_bytes() const { return bits(tensors_[open_].dtype) / 8; }
  bool is_whole() const { return tensors_.empty() || done_ == sizes_[open_]; }

  void begin() {
    const TensorSpec& tensor = tensors_[open_];
    append_tensor_begin(tensor.name, tensor.dtype, tensor.shape, open_ == 0, text_);
    done_ = 0;
  }
  void begin_next() {
    append_tensor_end(text_);
    ++open_;
    begin();
  }

  // Formats values as text on all threads, a bounded number at a time.
  Result<void> append(std::span<const std::byte> bytes) {
    constexpr std::size_t kValues = std::size_t{1} << 16;
    constexpr std::size_t kFlushBytes = std::size_t{1} << 20;
    const std::size_t slice = kValues * value_bytes();
    std::vector<std::string> texts(threads_);
    while (!bytes.empty()) {
      const std::size_t count = std::min<std::size_t>(threads_, (bytes.size() + slice - 1) / slice);
      parallel_for(count, threads_, [&](unsigned, std::size_t i) {
        const auto rest = bytes.subspan(i * slice);
        texts[i].clear();
        append_values(tensors_[open_].dtype, rest.first(std::min(slice, rest.size())), texts[i]);
        return true;
      });
      bytes = bytes.subspan(std::min(count * slice, bytes.size()));
      for (std::size_t i = 0; i < count; ++i) {
        text_ += texts[i];
        if (i + 1 < count || !bytes.empty()) text_ += ',';
      }
      if (text_.size() < kFlushBytes) continue;
      TRY(flush());
    }
    return {};
  }

  Result<void> flush() {
    if (auto written = output_[0].write_at(position_, as_bytes(text_)); !written) {
      failed_ = true;
      return written;
    }
    position_ += text_.size();
    text_.clear();
    return {};
  }

  Output output_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::uint64_t> sizes_;
  unsigned threads_;
  bool sync_;
  std::size_t open_ = 0;    // the tensor being written
  std::uint64_t done_ = 0;  // its bytes written so far
  std::string text_;        // not written yet
  std::uint64_t position_ = 0;
  bool failed_ = false;
};

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_writer(Output output, std::vector<TensorSpec> tensors,
                                                    const TensorWriterOptions& options) {
  std::vector<std::uint64_t> sizes;
  for (const TensorSpec& tensor : tensors) sizes.push_back(*safetensors::data_bytes(tensor));
  TRY(output.add(kSingleFiles[2]));
  for (const Companion& companion : options.companions) {
    TRY(output.add(companion));
  }
  auto writer = std::make_unique<FileWriter>(std::move(output), std::move(tensors), std::move(sizes), options);
  writer->begin_first();
  return writer;
}

}  // namespace ballast::mlx_json
