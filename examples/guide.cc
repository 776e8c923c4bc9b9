// guide MODEL OUT: the samples of docs/cpp.md. MODEL is a Qwen3 directory, OUT a folder to write into.

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <ballast/allocator.h>
#include <ballast/convert_model.h>
#include <ballast/model.h>
#include <ballast/quantize.h>
#include <ballast/quantized_weights.h>
#include <ballast/sink.h>
#include <ballast/verify.h>
#include <ballast/weights.h>

namespace {

using ballast::Model;
using ballast::Result;

Result<void> open(const std::string& path) {
  const Result<Model> model = Model::open(path);
  if (!model) return std::unexpected(model.error());
  for (const ballast::TensorInfo& tensor : model->tensors()) {
    std::cout << tensor.name << ' ' << ballast::name(tensor.dtype) << ' ' << tensor.bytes() << " bytes\n";
  }
  for (const std::string& warning : model->warnings()) std::cerr << "warning: " << warning << '\n';
  return {};
}

Result<void> read(const Model& model) {
  // Borrowed: the bytes of the mapped file, valid while the model lives.
  const auto view = model.view("model.norm.weight");
  if (!view) return std::unexpected(view.error());
  const auto codes = view->as<std::uint16_t>();  // BF16 as its bits
  if (!codes) return std::unexpected(codes.error());

  // Owned: a copy, aligned to 64 bytes.
  const auto copy = model.read("model.norm.weight");
  if (!copy) return std::unexpected(copy.error());

  // Owned and converted, from BF16, F16, F32 or an integer dtype.
  const auto values = model.read<float>("model.norm.weight");
  if (!values) return std::unexpected(values.error());

  std::cout << codes->size() << ' ' << copy->bytes().size() << ' ' << values->front() << '\n';
  return {};
}

Result<void> slice(const Model& model) {
  // Python's [0:4, ::16]. Dimensions without a slice are taken whole.
  const std::vector<ballast::Slice> slices{{.start = 0, .stop = 4}, {.step = 16}};
  const auto part = model.slice("model.embed_tokens.weight", slices);
  if (!part) return std::unexpected(part.error());
  std::cout << part->shape()[0] << " x " << part->shape()[1] << '\n';
  return {};
}

Result<void> convert(const Model& model, const std::string& out) {
  ballast::ConvertOptions options;
  options.dtype = ballast::DType::kF16;
  options.dtype_rules = {{.pattern = "*norm*", .dtype = ballast::DType::kF32}};
  options.sink.max_shard_bytes = 200'000;
  const auto report = ballast::convert_model(model, out, options);
  if (!report) return std::unexpected(report.error());
  std::cout << report->converted << " of " << report->tensors << " converted, " << report->files.size() << " files\n";
  return {};
}

Result<void> quantize(const Model& model, const std::string& out) {
  ballast::QuantizeOptions options;
  options.config.format = ballast::QuantizeFormat::kMlx;
  options.config.bit_width = 4;
  options.config.group_size = 64;
  const auto report = ballast::quantize_model(model, out, options);
  if (!report) return std::unexpected(report.error());
  std::cout << report->layers.size() << " layers, cosine " << report->quality.cosine_similarity << '\n';
  return {};
}

// Opens a model that may be quantized, and decodes one weight.
Result<void> read_quantized(const std::string& path) {
  const auto weights = ballast::Weights::open(path);
  if (!weights) return std::unexpected(weights.error());
  const auto values = weights->read("model.layers.0.mlp.up_proj.weight", ballast::DType::kF32);
  if (!values) return std::unexpected(values.error());
  std::cout << weights->scheme() << ' ' << values->shape()[0] << " x " << values->shape()[1] << '\n';
  return {};
}

Result<void> save(const std::string& path) {
  const std::vector<float> values(6, 0.5F);
  const std::vector<std::uint64_t> shape{2, 3};
  const ballast::TensorView tensor{
      .name = "a", .dtype = ballast::DType::kF32, .shape = shape, .bytes = std::as_bytes(std::span(values))};
  return ballast::save_tensors(path, std::span(&tensor, 1), {.metadata = {{"made", "here"}}});
}

// Memory of the caller: pinned, shared, or counted, as here.
class CountingAllocator final : public ballast::Allocator {
 public:
  std::byte* allocate(std::size_t size) override {
    bytes_ += size;
    return static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
  }
  void free(std::byte* bytes, std::size_t) override { std::free(bytes); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

Result<void> load(const Model& model) {
  CountingAllocator memory;
  const auto loaded = model.load_all({.allocator = &memory});
  if (!loaded) return std::unexpected(loaded.error());
  std::cout << loaded->tensors().size() << " tensors in " << memory.bytes() << " bytes\n";
  return {};
}

// Stops the work from another thread, or from the progress callback.
Result<void> verify(const std::string& path, const std::stop_token& token) {
  ballast::VerifyOptions options;
  options.values = true;
  options.work.threads = 2;
  options.work.stop = [token] { return token.stop_requested(); };
  options.work.progress = [](std::uint64_t done, std::uint64_t total, std::string_view) { return done <= total; };
  const auto report = ballast::verify_model(path, options);
  if (!report) return std::unexpected(report.error());
  for (const ballast::Defect& defect : report->defects) std::cout << defect.check << ": " << defect.message << '\n';
  std::cout << (report->ok() ? "ok\n" : "defects found\n");
  return {};
}

int exit_code(const ballast::Error& error) {
  std::cerr << error.message << '\n';
  switch (error.code) {
    case ballast::Errc::kInvalidArgument: return 2;
    case ballast::Errc::kWrite: return 4;
    case ballast::Errc::kCancelled: return 130;
    default: return 3;
  }
}

Result<void> run(const std::string& path, const std::string& out) {
  if (auto done = open(path); !done) return done;
  const Result<Model> model = Model::open(path);
  if (!model) return std::unexpected(model.error());
  if (auto done = read(*model); !done) return done;
  if (auto done = slice(*model); !done) return done;
  if (auto done = convert(*model, out + "/converted"); !done) return done;
  if (auto done = quantize(*model, out + "/quantized"); !done) return done;
  if (auto done = read_quantized(out + "/quantized"); !done) return done;
  if (auto done = save(out + "/saved.safetensors"); !done) return done;
  if (auto done = load(*model); !done) return done;
  return verify(path, {});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: guide MODEL OUT\n";
    return 2;
  }
  const Result<void> done = run(argv[1], argv[2]);
  return done ? 0 : exit_code(done.error());
}
