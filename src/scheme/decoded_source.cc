#include "scheme/decoded_source.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "model/identity.h"
#include "scheme/reader.h"

namespace ballast {
namespace {

bool is_wide_float(DType dtype) { return info(dtype).kind == NumberKind::kFloat && bits(dtype) >= 16; }

// The position of one weight's values in the file.
struct Values {
  std::uint64_t begin;
  std::uint64_t end;
  const Weight* weight;
  DType dtype;
};

class DecodedSource final : public Source {
 public:
  DecodedSource(Weights weights, safetensors::Layout layout, std::vector<Values> extents)
      : weights_(std::move(weights)), layout_(std::move(layout)), extents_(std::move(extents)) {
    // What has no identity cannot be resumed.
    if (weights_.stored() == nullptr) return;
    if (auto identity = describe_files(*weights_.stored())) identity_ = std::move(*identity);
  }

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
    return fail(Errc::kUnsupported, "quantized weights are decoded on reading, so there are no views; use read() or slice()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  // Whole rows are decoded, those at both ends into a buffer.
  Result<void> read_values(const Values& extent, std::uint64_t offset, std::span<std::byte> out) const {
    const WeightsReader& reader = reader_of(weights_);
    const Weight& weight = *extent.weight;
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

  Weights weights_;
  safetensors::Layout layout_;
  std::vector<Values> extents_;  // by position
  std::string identity_;
};

}  // namespace

DType decoded_dtype(const Weight& weight) { return is_wide_float(weight.dtype) ? weight.dtype : DType::kF32; }

Result<std::unique_ptr<Source>> open_decoded(Weights weights, std::optional<DType> dtype) {
  if (dtype && !is_wide_float(*dtype)) {
    return fail(Errc::kInvalidArgument, "dtype is {}, it must be F64, F32, F16 or BF16", name(*dtype));
  }
  std::vector<TensorSpec> specs;
  for (const Weight& weight : weights.weights()) {
    specs.push_back({.name = weight.name,
                     .dtype = weight.is_quantized() ? dtype.value_or(decoded_dtype(weight)) : weight.dtype,
                     .shape = weight.shape});
  }
  Metadata metadata = reader_of(weights).metadata();
  metadata.emplace("format", "pt");  // some readers of SafeTensors require a format
  auto layout = TRY(safetensors::make_layout(specs, metadata));
  std::vector<Values> extents;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t bytes = TRY(safetensors::data_bytes(specs[i]));
    if (bytes == 0) continue;
    extents.push_back(
        {.begin = layout.offsets[i], .end = layout.offsets[i] + bytes, .weight = &weights.weights()[i], .dtype = specs[i].dtype});
  }
  std::ranges::sort(extents, {}, &Values::begin);
  return std::make_unique<DecodedSource>(std::move(weights), std::move(layout), std::move(extents));
}

}  // namespace ballast
