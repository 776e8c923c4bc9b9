#include "scheme/decoded_source.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <ballast/convert.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "model/identity.h"
#include "scheme/reader.h"
#include "source/uri.h"

namespace ballast {
namespace {

bool is_wide_float(DType dtype) { return info(dtype).kind == NumberKind::kFloat && bits(dtype) >= 16; }

// The position of one weight's values in the file.
struct Values {
  std::uint64_t begin;
  std::uint64_t end;
  const Weight* weight;
  DType dtype;
  const ChangedWeight* changed;  // null if it is not
};

Result<std::string> identify(const Weights& weights) {
  if (weights.stored() != nullptr) return describe_files(*weights.stored());
  std::string text;
  for (const ModelFile& file : reader_of(weights).files()) text += TRY(describe_file(file, {}));
  return text;
}

class DecodedSource final : public Source {
 public:
  DecodedSource(Weights weights, ChangedWeights changed, safetensors::Layout layout, std::vector<Values> extents)
      : weights_(std::move(weights)), changed_(std::move(changed)), layout_(std::move(layout)), extents_(std::move(extents)) {}

  // What has no identity cannot be resumed.
  void set_identity(std::string identity) { identity_ = std::move(identity); }

  std::uint64_t size() const override { return layout_.file_size; }

  std::string identity() const override { return identity_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) {
      return fail(Errc::kIo, "{} bytes at offset {} are past the end at {}", out.size(), offset, size());
    }
    if (offset < layout_.header.size()) {
      const std::size_t part = std::min<std::size_t>(out.size(), layout_.header.size() - offset);
      std::memcpy(out.data(), layout_.header.data() + offset, part);
      offset += part;
      out = out.subspan(part);
    }
    auto next = std::ranges::upper_bound(extents_, offset, {}, &Values::end);
    for (; !out.empty(); ++next) {
      const std::size_t part = std::min<std::size_t>(out.size(), next->end - offset);
      TRY(read_values(*next, offset - next->begin, out.first(part)));
      offset += part;
      out = out.subspan(part);
    }
    return {};
  }

  void expect(std::span<const Extent>) const override { reader_of(weights_).expect_all(); }

  Result<std::span<const std::byte>> map() const override {
    return fail(Errc::kUnsupported, "weights are decoded on reading, so there are no views; use read() or slice()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  // Whole rows are decoded, those at both ends into a buffer.
  Result<void> read_values(const Values& extent, std::uint64_t offset, std::span<std::byte> out) const {
    const WeightsReader& reader = reader_of(weights_);
    const Weight& weight = *extent.weight;
    if (extent.changed != nullptr) return read_changed(extent, offset, out);
    if (!weight.is_quantized()) return reader.read_bytes(weight, offset, out);
    const std::uint64_t row_bytes = (extent.end - extent.begin) / weight.rows;
    while (!out.empty()) {
      const std::uint64_t row = offset / row_bytes;
      const std::uint64_t skip = offset % row_bytes;
      std::uint64_t part = out.size() / row_bytes * row_bytes;
      if (skip == 0 && part > 0) {
        TRY(reader.read_rows(weight, row, part / row_bytes, extent.dtype, out.first(part)));
      } else {
        const Bytes buffer(allocate_bytes(row_bytes));
        TRY(reader.read_rows(weight, row, 1, extent.dtype, {buffer.get(), row_bytes}));
        part = std::min<std::uint64_t>(out.size(), row_bytes - skip);
        std::memcpy(out.data(), buffer.get() + skip, part);
      }
      offset += part;
      out = out.subspan(part);
    }
    return {};
  }

  // Pieces are whole rows, if these are short: quantized weights are decoded by rows.
  Result<void> read_changed(const Values& extent, std::uint64_t offset, std::span<std::byte> out) const {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;
    const std::uint64_t size = bits(extent.dtype) / 8;
    const std::uint64_t columns = extent.weight->elements() / extent.weight->rows;
    const std::uint64_t most = columns > kPiece ? kPiece : kPiece - kPiece % columns;
    std::vector<float> values;
    std::vector<std::byte> rounded;
    while (!out.empty()) {
      const std::uint64_t first = offset / size;
      const std::uint64_t skip = offset % size;  // a part of an element
      const std::uint64_t wanted = (skip + out.size() + size - 1) / size;
      const std::uint64_t end = columns > kPiece ? first + most : (first / columns) * columns + most;
      values.resize(std::min(wanted, end - first));
      TRY(read_floats(*extent.weight, first, values));
      for (const auto& change : extent.changed->changes) TRY(change->apply(first, values));
      rounded.resize(values.size() * size);
      TRY(convert_values(DType::kF32, std::as_bytes(std::span(values)), extent.dtype, rounded));
      const std::size_t part = std::min<std::size_t>(out.size(), rounded.size() - skip);
      std::memcpy(out.data(), rounded.data() + skip, part);
      offset += part;
      out = out.subspan(part);
    }
    return {};
  }

  Result<void> read_floats(const Weight& weight, std::uint64_t first, std::span<float> values) const {
    const WeightsReader& reader = reader_of(weights_);
    if (!weight.is_quantized()) {
      const std::uint64_t size = bits(weight.dtype) / 8;
      std::vector<std::byte> stored(values.size() * size);
      TRY(reader.read_bytes(weight, first * size, stored));
      TRY(convert_values(weight.dtype, stored, DType::kF32, std::as_writable_bytes(values)));
      return {};
    }
    const std::uint64_t columns = weight.elements() / weight.rows;
    const std::uint64_t begin = first / columns;
    const std::uint64_t rows = (first + values.size() + columns - 1) / columns - begin;
    if (rows * columns == values.size()) {
      return reader.read_rows(weight, begin, rows, DType::kF32, std::as_writable_bytes(values));
    }
    std::vector<float> decoded(rows * columns);
    TRY(reader.read_rows(weight, begin, rows, DType::kF32, std::as_writable_bytes(std::span(decoded))));
    std::ranges::copy(std::span(decoded).subspan(first - begin * columns, values.size()), values.begin());
    return {};
  }

  Weights weights_;
  ChangedWeights changed_;
  safetensors::Layout layout_;
  std::vector<Values> extents_;  // by position
  std::string identity_;
};

struct LaidOut {
  safetensors::Layout layout;
  std::vector<Values> extents;
};

// The map nodes of `options.changed` stay where they are when it is moved.
Result<LaidOut> lay_out(const Weights& weights, const DecodeOptions& options) {
  std::vector<TensorSpec> specs;
  std::vector<const ChangedWeight*> changed;
  for (const Weight& weight : weights.weights()) {
    const auto found = options.changed.find(weight.name);
    changed.push_back(found == options.changed.end() ? nullptr : &found->second);
    DType dtype = weight.is_quantized() ? options.dtype.value_or(decoded_dtype(weight)) : weight.dtype;
    if (changed.back() != nullptr) dtype = changed.back()->dtype;
    specs.push_back({.name = weight.name, .dtype = dtype, .shape = weight.shape});
  }
  const bool is_plain = !weights.is_quantized() && weights.stored() != nullptr;
  Metadata metadata = is_plain ? weights.stored()->metadata() : reader_of(weights).metadata();
  if (!is_plain) metadata.emplace("format", "pt");  // some readers of SafeTensors require a format
  LaidOut made{.layout = TRY(safetensors::make_layout(specs, metadata)), .extents = {}};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t bytes = TRY(safetensors::data_bytes(specs[i]));
    if (bytes == 0) continue;
    made.extents.push_back({.begin = made.layout.offsets[i],
                            .end = made.layout.offsets[i] + bytes,
                            .weight = &weights.weights()[i],
                            .dtype = specs[i].dtype,
                            .changed = changed[i]});
  }
  std::ranges::sort(made.extents, {}, &Values::begin);
  return made;
}

}  // namespace

DType decoded_dtype(const Weight& weight) { return is_wide_float(weight.dtype) ? weight.dtype : DType::kF32; }

Result<Model> open_decoded(Weights weights, DecodeOptions options) {
  if (options.dtype && !is_wide_float(*options.dtype)) {
    return fail(Errc::kInvalidArgument, "{}: dtype is {}, it must be F64, F32, F16 or BF16", shown(weights.path()),
                name(*options.dtype));
  }
  const WeightsReader& reader = reader_of(weights);
  const std::string path = weights.path();
  std::optional<Folder> folder = reader.folder() != nullptr ? std::optional(*reader.folder()) : std::nullopt;
  std::optional<ModelConfig> config = weights.config();
  std::vector<std::string> warnings(weights.warnings().begin(), weights.warnings().end());
  Decoded decoded{.scheme = weights.is_quantized() ? std::string(weights.scheme()) : std::string(),
                  .names = {},
                  .files = weights.files(),
                  .dropped = {weights.dropped().begin(), weights.dropped().end()},
                  .adapters = std::move(options.adapters),
                  .notes = std::move(options.notes)};
  std::string identity = identify(weights).value_or("");
  if (!identity.empty()) identity += options.identity;
  auto layout = lay_out(weights, options);
  if (!layout) return fail_at(shown(path), layout.error());
  for (const Weight& weight : weights.weights()) {
    if (weight.is_quantized() || options.changed.contains(weight.name)) decoded.names.insert(weight.name);
  }
  auto source = std::make_unique<DecodedSource>(std::move(weights), std::move(options.changed), std::move(layout->layout),
                                                std::move(layout->extents));
  source->set_identity(std::move(identity));
  return ModelAccess::open_virtual(std::move(source), path, std::move(folder), std::move(config), std::move(warnings),
                                   std::move(decoded));
}

}  // namespace ballast
