#include "jobs/calibrate/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <ballast/model.h>
#include <ballast/sink.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/statistics_table.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKey = "key";
constexpr std::string_view kFinished = "finished_layers";
constexpr const char* kHidden = "hidden";

std::uint64_t number_in(const Metadata& metadata, std::string_view name) {
  const auto found = metadata.find(name);
  std::uint64_t number = 0;
  if (found != metadata.end()) std::from_chars(found->second.data(), found->second.data() + found->second.size(), number);
  return number;
}

bool has_key(const std::string& path, const std::string& key) {
  const auto file = Model::open(path);
  if (!file) return false;
  const auto found = file->metadata().find(kKey);
  return found != file->metadata().end() && found->second == key;
}

// Writes the tensors of some SafeTensors files into one.
Result<void> join_files(std::span<const std::string> files, const std::string& out, const Metadata& metadata, bool sync) {
  std::vector<Model> models;
  std::vector<TensorSpec> specs;
  for (const std::string& file : files) {
    models.push_back(TRY(Model::open(file)));
    for (const TensorInfo& tensor : models.back().tensors()) {
      specs.push_back(
          {.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}});
    }
  }
  const auto sink = TRY(create_sink(out, specs, {.format = Format::kSafetensors, .metadata = metadata, .sync = sync}));
  constexpr std::uint64_t kPiece = std::uint64_t{8} << 20;
  std::vector<std::byte> piece;
  std::size_t index = 0;
  for (const Model& model : models) {
    for (const TensorInfo& tensor : model.tensors()) {
      for (std::uint64_t at = 0; at < tensor.bytes(); at += kPiece) {
        piece.resize(std::min(kPiece, tensor.bytes() - at));
        TRY(model.read_into(tensor.name, at, piece));
        TRY(sink->write(index, at, piece));
      }
      ++index;
    }
  }
  return sink->commit();
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path, std::string key, bool resume) {
  Checkpoint checkpoint(path, std::move(key), resume);
  checkpoint.complete_ = resume && has_key(path, checkpoint.key_);
  const std::string folder = checkpoint.folder();
  if (resume) {
    const auto hidden = Model::open(checkpoint.hidden_path());
    if (has_key(checkpoint.hidden_path(), checkpoint.key_)) checkpoint.finished_ = number_in(hidden->metadata(), kFinished);
  }
  std::error_code error;
  if (checkpoint.finished_ == 0) fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot create the folder", escape(folder));
  return checkpoint;
}

Checkpoint::~Checkpoint() {
  std::error_code ignored;
  if (!path_.empty() && !resume_) fs::remove_all(folder(), ignored);
}

std::string Checkpoint::part(std::uint64_t layer) const { return fmt::format("{}/layer-{:05}.safetensors", folder(), layer); }

std::string Checkpoint::piece(std::uint64_t layer, std::uint64_t pass) const {
  return fmt::format("{}/layer-{:05}-{}.safetensors", folder(), layer, pass);
}

Result<void> Checkpoint::load(std::uint64_t tokens, HiddenStates& hidden) const {
  const Model model = TRY(Model::open(hidden_path()));
  constexpr std::uint64_t kTokens = 1024;
  std::vector<float> rows;
  for (std::uint64_t token = 0; token < tokens; token += kTokens) {
    rows.resize(std::min(kTokens, tokens - token) * hidden.columns());
    TRY(model.read_into(kHidden, token * hidden.columns() * sizeof(float), std::as_writable_bytes(std::span(rows))));
    TRY(hidden.write(token, rows));
  }
  return {};
}

Result<void> Checkpoint::save_part(std::uint64_t layer, const InputRecorder& recorder) const {
  return recorder.save(part(layer), {{"format", std::string(kStatisticsFormat)}});
}

Result<void> Checkpoint::save_piece(std::uint64_t layer, std::uint64_t pass, const InputRecorder& recorder) const {
  return recorder.save(piece(layer, pass), {{"format", std::string(kStatisticsFormat)}});
}

Result<void> Checkpoint::join_pieces(std::uint64_t layer, std::uint64_t passes) const {
  std::vector<std::string> pieces;
  for (std::uint64_t pass = 0; pass < passes; ++pass) pieces.push_back(piece(layer, pass));
  TRY(join_files(pieces, part(layer), {{"format", std::string(kStatisticsFormat)}}, false));
  std::error_code ignored;
  for (const std::string& each : pieces) fs::remove(each, ignored);
  return {};
}

Result<void> Checkpoint::save_hidden(std::uint64_t layer, std::uint64_t tokens, std::uint64_t window,
                                     const HiddenStates& hidden) const {
  if (!resume_) return {};
  const SinkOptions options{.format = Format::kSafetensors,
                            .metadata = {{std::string(kKey), key_}, {std::string(kFinished), fmt::to_string(layer + 1)}},
                            .sync = false};
  const auto sink =
      TRY(create_sink(hidden_path(), {{.name = kHidden, .dtype = DType::kF32, .shape = {tokens, hidden.columns()}}}, options));
  std::vector<float> rows(window * hidden.columns());
  for (std::uint64_t token = 0; token < tokens; token += window) {
    TRY(hidden.read(token, rows));
    TRY(sink->write(0, token * hidden.columns() * sizeof(float), std::as_bytes(std::span(rows))));
  }
  return sink->commit();
}

Result<void> Checkpoint::join(std::uint64_t layers, bool sync) {
  std::vector<std::string> parts;
  for (std::uint64_t layer = 0; layer < layers; ++layer) {
    if (fs::exists(part(layer))) parts.push_back(part(layer));
  }
  TRY(join_files(parts, path_, {{"format", std::string(kStatisticsFormat)}, {std::string(kKey), key_}}, sync));
  std::error_code ignored;
  fs::remove_all(folder(), ignored);
  return {};
}

}  // namespace ballast
