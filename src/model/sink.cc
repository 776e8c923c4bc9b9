#include "model/sink.h"

#include <algorithm>
#include <utility>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/file_names.h"
#include "base/text.h"
#include "base/try.h"
#include "format/mlx_json/file_writer.h"
#include "format/mlx_json/writer.h"
#include "format/names.h"
#include "format/safetensors/layout.h"
#include "format/safetensors/writer.h"

namespace ballast {
namespace {

// The format by the suffix of a path; empty for a directory.
std::optional<Format> single_file_format(std::string_view path) {
  if (path.ends_with(kSafetensorsSuffix)) return Format::kSafetensors;
  if (path.ends_with(kMlxJsonSuffix)) return Format::kMlxJson;
  return std::nullopt;
}

Result<void> check_tensors(std::span<const TensorSpec> tensors, const Metadata& metadata, Format format) {
  TRY(check_names(tensors, metadata));
  for (const TensorSpec& tensor : tensors) {
    TRY(safetensors::data_bytes(tensor));
    if (format != Format::kMlxJson) continue;
    const auto writable = mlx_json::check_writable(tensor.dtype);
    if (!writable) return fail_at(fmt::format("tensor {}", quote(tensor.name)), writable.error());
  }
  return {};
}

// The suffix of a file format that cannot be written. Such a path is surely not meant as a directory.
std::string_view foreign_suffix(std::string_view path) {
  for (const std::string_view suffix :
       {".bin", ".ckpt", ".gguf", ".h5", ".json", ".npy", ".npz", ".onnx", ".parquet", ".pt", ".pth"}) {
    if (path.ends_with(suffix)) return suffix;
  }
  return {};
}

// The public interface of a TensorWriter.
class WriterSink final : public Sink {
 public:
  explicit WriterSink(std::unique_ptr<TensorWriter> writer) : writer_(std::move(writer)) {}

  Result<void> write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) override {
    return writer_->write(tensor, offset, bytes);
  }
  Result<void> commit() override { return writer_->commit(); }

 private:
  std::unique_ptr<TensorWriter> writer_;
};

}  // namespace

std::string_view file_suffix(std::string_view path) {
  for (const std::string_view suffix : {kSafetensorsSuffix, kMlxJsonSuffix}) {
    if (path.ends_with(suffix)) return suffix;
  }
  return foreign_suffix(path);
}

Result<std::unique_ptr<TensorWriter>> create_tensor_writer(const std::string& path, std::vector<TensorSpec> tensors,
                                                           const SinkOptions& options, const WriterExtras& extras) {
  const auto by_suffix = single_file_format(path);
  const Format format = options.format.value_or(by_suffix.value_or(Format::kSafetensors));
  if (by_suffix && format != *by_suffix) {
    return fail(Errc::kInvalidArgument, "{}: the suffix means {}, but the requested format is {}", escape(path), name(*by_suffix),
                name(format));
  }
  if (const std::string_view foreign = foreign_suffix(path); !foreign.empty()) {
    return fail(Errc::kInvalidArgument, "{}: cannot write {} files; give a .safetensors or .mlx file, or a directory",
                escape(path), foreign);
  }
  if (options.max_shard_bytes != 0 && (by_suffix || format != Format::kSafetensors)) {
    return fail(Errc::kInvalidArgument, "{}: max_shard_size needs a directory as output, with SafeTensors files", escape(path));
  }
  if (auto checked = check_tensors(tensors, options.metadata, format); !checked) return fail_at(escape(path), checked.error());
  if (!extras.resume_key.empty() && format != Format::kSafetensors) {
    return fail(Errc::kInvalidArgument, "{}: only SafeTensors output can be resumed", escape(path));
  }
  auto output = TRY(by_suffix ? Output::file(path) : Output::directory(path));
  const TensorWriterOptions writer{.metadata = options.metadata,
                                   .keep_empty_metadata = options.keep_empty_metadata,
                                   .max_shard_bytes = options.max_shard_bytes,
                                   .sync = options.sync,
                                   .threads = extras.threads,
                                   .stem = extras.stem,
                                   .companions = by_suffix ? std::span<const Companion>() : extras.companions,
                                   .resume_key = extras.resume_key,
                                   .side_files = extras.side_files,
                                   .index_metadata = extras.index_metadata};
  if (format == Format::kMlxJson) return mlx_json::create_writer(std::move(output), std::move(tensors), writer);
  return safetensors::create_writer(std::move(output), tensors, writer);
}

Result<std::unique_ptr<Sink>> create_sink(const std::string& path, std::vector<TensorSpec> tensors, const SinkOptions& options,
                                          const WorkOptions& work) {
  return std::make_unique<WriterSink>(TRY(create_tensor_writer(path, std::move(tensors), options, {.threads = work.threads})));
}

Result<void> save_tensors(const std::string& path, std::span<const TensorView> tensors, const SinkOptions& options,
                          const WorkOptions& work) {
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    specs.push_back(
        {.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}});
  }
  const auto sink = TRY(create_tensor_writer(path, std::move(specs), options, {.threads = work.threads}));

  struct Piece {
    std::size_t tensor;
    std::size_t offset;
  };
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
  std::vector<Piece> pieces;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t at = 0; at < tensors[i].bytes.size(); at += kPieceBytes) pieces.push_back({.tensor = i, .offset = at});
    total += tensors[i].bytes.size();
  }
  const bool any_order = tensors.empty() || sink->place(0).has_value();
  const auto bytes_of = [&](const Piece& piece) {
    const auto rest = tensors[piece.tensor].bytes.subspan(piece.offset);
    return rest.first(std::min(rest.size(), kPieceBytes));
  };
  TRY((BlockLoop{.work = work, .total = total, .threads = any_order ? work.threads : 1}.run(
      pieces.size(),
      [&](unsigned, std::size_t i) { return sink->write(pieces[i].tensor, pieces[i].offset, bytes_of(pieces[i])); },
      [&](std::size_t i) { return BlockDone{.bytes = bytes_of(pieces[i]).size(), .what = tensors[pieces[i].tensor].name}; })));
  return sink->commit();
}

}  // namespace ballast
