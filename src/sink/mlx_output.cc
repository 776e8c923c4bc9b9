// MLX's quantized SafeTensors: see docs/formats/mlx-quantized.md.

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "convert/kernels.h"
#include "model/locate.h"
#include "sink/companions.h"
#include "sink/file_sink.h"
#include "sink/quantized_output.h"

namespace ballast {
namespace {

constexpr std::string_view kKeyMember = "ballast_key";

// The module that a weight belongs to, which is what MLX calls it by.
std::string_view module_of(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  return tensor.ends_with(kWeight) ? tensor.substr(0, tensor.size() - kWeight.size()) : tensor;
}

// The bits that most parameters have.
unsigned usual_bits(const QuantizeWork& work) {
  std::map<unsigned, std::uint64_t> parameters;
  for (const LayerPlan& plan : work.plans) {
    if (plan.bits != 0) parameters[plan.bits] += plan.rows * plan.columns;
  }
  const auto most = std::ranges::max_element(parameters, {}, [](const auto& entry) { return entry.second; });
  return most == parameters.end() ? work.config.bit_width : most->first;
}

std::string quantization_section(const QuantizeWork& work) {
  const unsigned bits = usual_bits(work);
  std::string text = fmt::format(R"({{"group_size": {}, "bits": {}, "mode": "affine")", work.config.group_size, bits);
  for (std::size_t i = 0; i < work.plans.size(); ++i) {
    if (work.plans[i].bits == 0 || work.plans[i].bits == bits) continue;
    text += ", ";
    append_json_string(module_of(work.model.tensors()[i].name), text);
    text += fmt::format(R"(: {{"group_size": {}, "bits": {}}})", work.plans[i].group_size, work.plans[i].bits);
  }
  return text + "}";
}

Result<std::vector<Companion>> companions_of(const QuantizeWork& work) {
  std::vector<Companion> companions = work.companions;
  auto config = std::ranges::find(companions, "config.json", &Companion::name);
  std::string text = "{}";
  if (config == companions.end()) {
    companions.push_back({.name = "config.json"});
    config = std::prev(companions.end());
  } else {
    auto read = config->path.empty() ? Result<std::string>(config->text) : read_text(config->path);
    if (!read) return fail_at(escape(config->path), read.error());
    text = std::move(*read);
  }
  config->text = with_quantization(text, quantization_section(work));
  config->path.clear();
  return companions;
}

class MlxOutput final : public QuantizedOutput {
 public:
  explicit MlxOutput(const QuantizeWork& work) : work_(work) {}

  Result<void> open(const std::string& directory, bool sync, bool keep) {
    const auto companions = companions_of(work_);
    if (!companions) return std::unexpected(companions.error());
    auto sink = create_file_sink(
        directory, declare(),
        {.format = Format::kSafetensors, .max_shard_bytes = 5'000'000'000, .metadata = {{"format", "mlx"}}, .sync = sync},
        {.companions = *companions,
         .resume_key = keep ? work_.resume_key : "",
         .index_metadata =
             fmt::format("\"total_parameters\": {},\n    \"{}\": \"{}\"", work_.model.parameter_count(), kKeyMember, work_.key)});
    if (!sink) return std::unexpected(sink.error());
    sink_ = std::move(*sink);
    return {};
  }

  bool has(std::size_t block) override {
    const std::vector<Piece> pieces = pieces_of(work_.blocks[block]);
    const auto placed = [&](const Piece& piece) {
      auto place = *sink_->place(piece.tensor);
      place.offset += piece.offset;
      return place;
    };
    if (!std::ranges::all_of(pieces, [&](const Piece& piece) { return sink_->has(placed(piece), piece.bytes); })) return false;
    for (const Piece& piece : pieces) sink_->skip(placed(piece), piece.bytes);
    return true;
  }

  Result<void> write(std::size_t block, const CodedRows& coded) override {
    const std::vector<Piece> pieces = pieces_of(work_.blocks[block]);
    const DType dtype = work_.formats[work_.blocks[block].tensor].parameters;
    if (auto written = sink_->write(pieces[0].tensor, pieces[0].offset, coded.packed); !written) return written;
    if (auto written = write_parameters(pieces[1], dtype, coded.scales); !written) return written;
    return write_parameters(pieces[2], dtype, coded.offsets);
  }

  Result<void> write_kept(std::size_t block, std::span<const std::byte> bytes) override {
    const Piece piece = pieces_of(work_.blocks[block]).front();
    return sink_->write(piece.tensor, piece.offset, bytes);
  }

  Result<void> commit() override { return sink_->commit(); }

  std::vector<File> files() const override {
    std::vector<File> files;
    for (const FileSink::File& file : sink_->files()) files.push_back({.path = file.path, .bytes = file.bytes});
    return files;
  }

 private:
  // Part of a tensor of the output.
  struct Piece {
    std::size_t tensor;
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  // The tensors of the output: one for each that is kept, three for each that is quantized.
  std::vector<TensorSpec> declare() {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < work_.plans.size(); ++i) {
      const TensorInfo& tensor = work_.model.tensors()[i];
      const RowFormat& format = work_.formats[i];
      std::vector<std::uint64_t> shape(tensor.shape.begin(), tensor.shape.end());
      first_.push_back(specs.size());
      if (!work_.is_quantized(i)) {
        specs.push_back({.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = std::move(shape)});
        continue;
      }
      shape.back() = format.packed_bytes() / sizeof(std::uint32_t);
      specs.push_back({.name = std::string(tensor.name), .dtype = DType::kU32, .shape = shape});
      shape.back() = format.groups();
      for (const std::string_view kind : {"scales", "biases"}) {
        specs.push_back({.name = fmt::format("{}.{}", module_of(tensor.name), kind), .dtype = format.parameters, .shape = shape});
      }
    }
    return specs;
  }

  std::vector<Piece> pieces_of(const TensorBlock& block) const {
    const RowFormat& format = work_.formats[block.tensor];
    const std::size_t first = first_[block.tensor];
    const auto piece = [&](std::size_t tensor, std::uint64_t row_bytes) {
      return Piece{.tensor = tensor, .offset = block.first_row * row_bytes, .bytes = block.rows * row_bytes};
    };
    if (!work_.is_quantized(block.tensor)) return {piece(first, format.columns)};
    const std::uint64_t parameters = format.groups() * bits(format.parameters) / 8;
    return {piece(first, format.packed_bytes()), piece(first + 1, parameters), piece(first + 2, parameters)};
  }

  // They are numbers of the dtype already, so that nothing is rounded here.
  Result<void> write_parameters(const Piece& piece, DType dtype, std::span<const float> values) {
    if (dtype == DType::kF32) return sink_->write(piece.tensor, piece.offset, std::as_bytes(values));
    std::vector<std::byte> bytes(piece.bytes);
    from_f32(dtype, std::as_bytes(values).data(), values.size(), bytes.data(), Stores::kOrdinary);
    return sink_->write(piece.tensor, piece.offset, bytes);
  }

  const QuantizeWork& work_;
  std::vector<std::size_t> first_;  // for each tensor of the model, its first one of the output
  std::unique_ptr<FileSink> sink_;
};

}  // namespace

Result<std::unique_ptr<QuantizedOutput>> create_mlx_output(const std::string& directory, const QuantizeWork& work, bool sync,
                                                           bool keep) {
  auto output = std::make_unique<MlxOutput>(work);
  if (auto opened = output->open(directory, sync, keep); !opened) return std::unexpected(opened.error());
  return output;
}

std::string finished_mlx_key(const std::string& directory) {
  const auto text = read_text(directory + "/model.safetensors.index.json");
  if (!text) return {};
  simdjson::dom::parser parser;
  const auto index = parse_json(parser, *text);
  std::string_view key;
  if (!index || (*index)["metadata"][kKeyMember].get(key) != simdjson::SUCCESS) return {};
  return std::string(key);
}

}  // namespace ballast
