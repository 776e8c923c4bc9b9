#include <ballast/calibrate.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/forward_pass.h"
#include "calibrate/forward/input_recorder.h"
#include "jobs/calibrate/checkpoint.h"
#include "jobs/calibrate/sequential.h"
#include "model/identity.h"
#include "output/file.h"
#include "plan/config_json.h"
#include "source/sha256.h"

namespace ballast {
namespace {

constexpr std::uint64_t kCalibrationMemory = std::uint64_t{1} << 30;

// What is recorded of each layer.
struct Recording {
  bool hessian;
  std::uint64_t most_bytes;  // of Hessians at once; a larger one is alone
  bool keeps;                // the hidden states after the layer
};

// Changes when anything changes that the statistics depend on.
Result<std::string> key_of(const Model& model, const TokenWindows& tokens, const CalibrateOptions& options) {
  const std::string text = fmt::format("by attention {}\n{} {} {}\n", TRY(describe_files(model)), tokens.length, options.hessian,
                                       options.sequential == nullptr ? "" : settings_json(*options.sequential));
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  hash.add(std::as_bytes(std::span(tokens.ids)));
  return hash.hex();
}

// The work in units of a pass through one layer.
ForwardPass::Tick tick_of(const WorkOptions& work, const TextModel& text, std::size_t layer, std::uint64_t pass,
                          std::uint64_t passes) {
  const std::uint64_t size = DecoderLayer::bytes(text, 0);
  const std::uint64_t total = text.layers.size() * passes * size;
  const std::uint64_t before = (layer * passes + pass) * size;
  return [&work, total, before, size, what = fmt::format("layer {}", layer)](double share) {
    return report(work, before + static_cast<std::uint64_t>(share * static_cast<double>(size)), total, what);
  };
}

// Bytes of all Hessians of a layer.
std::uint64_t hessian_bytes(const TextModel& text, std::size_t layer) {
  const auto square = [](std::uint64_t columns) { return columns * columns * sizeof(float); };
  const std::uint64_t attention = square(text.hidden) + square(text.query());
  if (!text.layers[layer].has_experts) return attention + square(text.hidden) + square(text.intermediate);
  return attention + square(text.hidden) + text.experts->count * (square(text.hidden) + square(text.experts->intermediate));
}

// Records the inputs of one layer, in as many passes as the Hessians need. Keeps the hidden states after it if there is no
// sequential quantizer, which does so itself.
Result<void> record_layer(ForwardPass& pass, const DecoderLayer& layer, std::size_t index, const Checkpoint& checkpoint,
                          const Recording& recording, const ForwardPass::Tick& tick) {
  InputRecorder recorder(pass.products(), recording.hessian, recording.most_bytes);
  const SeeInputs see = [&](std::span<const std::string> weights, const LinearInputs& inputs) { recorder.see(weights, inputs); };
  if (!recording.hessian || hessian_bytes(pass.text(), index) <= recording.most_bytes) {
    TRY(pass.run(layer, index, see, recording.keeps, tick));
    return checkpoint.save_part(index, recorder);
  }
  const ForwardPass::Tick again = [&](double) { return tick(1); };
  for (std::uint64_t count = 0;; recorder.next()) {
    TRY(pass.run(layer, index, see, false, count == 0 ? tick : again));
    TRY(checkpoint.save_piece(index, count++, recorder));
    if (recorder.has_more()) continue;
    TRY(checkpoint.join_pieces(index, count));
    break;
  }
  if (recording.keeps) TRY(pass.run(layer, index, {}, true, again));
  return {};
}

Result<void> run_layers(ForwardPass& pass, const Checkpoint& checkpoint, const CalibrateOptions& options,
                        const Recording& recording, std::optional<SequentialQuantizer>& sequential) {
  const std::uint64_t tokens = pass.tokens().ids.size();
  const std::uint64_t passes = sequential ? 2 : 1;
  for (std::size_t i = checkpoint.finished(); i < pass.layer_count(); ++i) {
    DecoderLayer layer = TRY(pass.load_layer(i));
    TRY(record_layer(pass, layer, i, checkpoint, recording, tick_of(options.work, pass.text(), i, 0, passes)));
    if (sequential) {
      TRY(sequential->quantize(layer, checkpoint.part(i)));
      TRY(pass.run(layer, i, {}, true, tick_of(options.work, pass.text(), i, 1, passes)));
    }
    TRY(checkpoint.save_hidden(i, tokens, pass.tokens().length, pass.hidden()));
  }
  return {};
}

// The inputs of the output layer, if that is a tensor of its own.
Result<void> see_head(ForwardPass& pass, const Checkpoint& checkpoint, bool hessian) {
  const TextModel& text = pass.text();
  if (text.head.ends_with("embed_tokens.weight")) return {};
  TRY(pass.finish());
  InputRecorder recorder(pass.products(), hessian, 0);
  std::vector<float> rows(pass.tokens().length * text.hidden);
  for (std::uint64_t token = 0; token < pass.tokens().ids.size(); token += pass.tokens().length) {
    TRY(pass.hidden().read(token, rows));
    recorder.see(std::vector{text.head},
                 {.values = rows.data(), .tokens = pass.tokens().length, .columns = text.hidden, .importance = nullptr});
  }
  return checkpoint.save_part(text.layers.size(), recorder);
}

}  // namespace

Result<CalibrateReport> calibrate_model(const Model& model, const TokenWindows& tokens, const std::string& path,
                                        const CalibrateOptions& options) {
  TRY(check_output_path(path));
  if (!path.ends_with(".safetensors")) {
    return fail(Errc::kInvalidArgument, "{}: statistics are a .safetensors file; give such a name", escape(path));
  }
  TRY(check_replaceable(path));
  const Blas& blas = *TRY(Blas::load());
  const Blas::OneThread one_thread(blas);
  const std::uint64_t limit = options.work.memory_limit != 0 ? options.work.memory_limit : kCalibrationMemory;
  const std::uint64_t rest = options.hessian ? limit / 8 : limit / 4;
  const PassMemory memory{.hidden = rest, .layer = limit / 2, .activations = rest};
  const Recording recording{.hessian = options.hessian, .most_bytes = limit / 4, .keeps = options.sequential == nullptr};
  ForwardPass pass = TRY(ForwardPass::make(model, tokens, blas, memory, options.work.threads));
  std::optional<SequentialQuantizer> sequential;
  if (options.sequential != nullptr) sequential.emplace(TRY(SequentialQuantizer::make(model, *options.sequential, options.work)));
  Checkpoint checkpoint = TRY(Checkpoint::open(path, TRY(key_of(model, tokens, options)), options.resume));
  CalibrateReport report{.tokens = tokens.ids.size(), .windows = tokens.count(), .layers = pass.layer_count()};
  report.resumed_layers = checkpoint.is_complete() ? report.layers : checkpoint.finished();
  if (!checkpoint.is_complete()) {
    TRY(checkpoint.finished() > 0 ? checkpoint.load(tokens.ids.size(), pass.hidden()) : pass.embed());
    TRY(run_layers(pass, checkpoint, options, recording, sequential));
    TRY(see_head(pass, checkpoint, options.hessian));
    TRY(checkpoint.join(pass.layer_count() + 1, options.sync));
  }
  const Model written = TRY(Model::open(path));
  report.weights = static_cast<std::uint64_t>(
      std::ranges::count_if(written.tensors(), [](const TensorInfo& tensor) { return tensor.name.ends_with(".x_sqmean"); }));
  report.bytes = written.file_size();
  return report;
}

}  // namespace ballast
