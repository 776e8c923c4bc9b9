#include <ballast/sink.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "format/names.h"
#include "format/safetensors/layout.h"
#include "format/tensor_writer.h"
#include "format/mlx_json/file_writer.h"
#include "format/safetensors/writer.h"

namespace ballast {
namespace {

// What the ending of a path stands for; empty for a directory.
std::optional<Format> single_file_format(std::string_view path) {
  if (path.ends_with(".safetensors")) return Format::kSafetensors;
  if (path.ends_with(".mlx")) return Format::kMlxJson;
  return std::nullopt;
}

Result<void> check_tensors(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  if (auto checked = check_names(tensors, metadata); !checked) return checked;
  for (const TensorSpec& tensor : tensors) {
    if (auto bytes = safetensors::data_bytes(tensor); !bytes) return std::unexpected(bytes.error());
  }
  return {};
}

// What a name ends in that is not the name of a directory.
std::string_view foreign_ending(std::string_view path) {
  for (const std::string_view ending :
       {".bin", ".ckpt", ".gguf", ".h5", ".json", ".npy", ".npz", ".onnx", ".parquet", ".pt", ".pth"}) {
    if (path.ends_with(ending)) return ending;
  }
  return {};
}

}  // namespace

Result<void> check_piece(std::span<const std::uint64_t> sizes, std::size_t tensor, std::uint64_t offset, std::uint64_t bytes) {
  if (tensor >= sizes.size()) {
    return fail(Errc::kInvalidArgument, "there is no tensor number {}, {} were declared", tensor, sizes.size());
  }
  if (offset > sizes[tensor] || bytes > sizes[tensor] - offset) {
    return fail(Errc::kInvalidArgument, "tensor number {} has {} bytes, {} were given from byte {} on", tensor, sizes[tensor],
                bytes, offset);
  }
  return {};
}

Result<std::unique_ptr<FileSink>> create_file_sink(const std::string& path, std::vector<TensorSpec> tensors,
                                                   const SinkOptions& options, const SinkExtras& extras) {
  const auto ending = single_file_format(path);
  const Format format = options.format.value_or(ending.value_or(Format::kSafetensors));
  if (ending && format != *ending) {
    return fail(Errc::kInvalidArgument, "{}: the ending says {}, the format asked for is {}", escape(path), name(*ending),
                name(format));
  }
  if (const std::string_view foreign = foreign_ending(path); !foreign.empty()) {
    return fail(Errc::kInvalidArgument, "{}: {} cannot be written; files end in .safetensors or .mlx, all else is a directory",
                escape(path), foreign);
  }
  if (options.max_shard_bytes != 0 && (ending || format != Format::kSafetensors)) {
    return fail(Errc::kInvalidArgument, "{}: shards need a directory of SafeTensors", escape(path));
  }
  if (auto checked = check_tensors(tensors, options.metadata); !checked) return fail_at(escape(path), checked.error());
  if (!extras.resume_key.empty() && format != Format::kSafetensors) {
    return fail(Errc::kInvalidArgument, "{}: only SafeTensors can be resumed", escape(path));
  }
  auto output = ending ? Output::file(path) : Output::directory(path);
  if (!output) return std::unexpected(output.error());
  const auto companions = ending ? std::span<const Companion>() : extras.companions;
  if (format == Format::kMlxJson) return create_mlx_json_sink(std::move(*output), std::move(tensors), options, companions);
  return create_safetensors_sink(std::move(*output), tensors, options,
                                 {.companions = companions,
                                  .resume_key = extras.resume_key,
                                  .side_files = extras.side_files,
                                  .index_metadata = extras.index_metadata});
}

Result<std::unique_ptr<Sink>> create_sink(const std::string& path, std::vector<TensorSpec> tensors, const SinkOptions& options) {
  auto sink = create_file_sink(path, std::move(tensors), options);
  if (!sink) return std::unexpected(sink.error());
  return std::move(*sink);
}

Result<void> save_tensors(const std::string& path, std::span<const TensorView> tensors, const SinkOptions& options,
                          const Progress& progress) {
  std::vector<TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    specs.push_back(
        {.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}});
  }
  const auto sink = create_file_sink(path, std::move(specs), options);
  if (!sink) return std::unexpected(sink.error());

  struct Piece {
    std::size_t tensor;
    std::size_t offset;
  };
  constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
  std::vector<Piece> pieces;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t at = 0; at < tensors[i].bytes.size(); at += kPieceBytes) pieces.push_back({.tensor = i, .offset = at});
    total += tensors[i].bytes.size();
  }
  std::mutex mutex;
  Result<void> outcome;
  const bool any_order = tensors.empty() || (*sink)->place(0).has_value();
  parallel_for(pieces.size(), any_order ? options.threads : 1, [&](unsigned, std::size_t i) {
    const TensorView& tensor = tensors[pieces[i].tensor];
    const auto rest = tensor.bytes.subspan(pieces[i].offset);
    const auto bytes = rest.first(std::min(rest.size(), kPieceBytes));
    auto written = (*sink)->write(pieces[i].tensor, pieces[i].offset, bytes);
    if (written && !progress) return true;
    const std::scoped_lock lock(mutex);
    done += bytes.size();
    if (!written && outcome) outcome = std::move(written);
    if (outcome && progress && !progress(done, total, tensor.name)) outcome = fail(Errc::kCancelled, "cancelled");
    return outcome.has_value();
  });
  if (!outcome) return outcome;
  return (*sink)->commit();
}

}  // namespace ballast
