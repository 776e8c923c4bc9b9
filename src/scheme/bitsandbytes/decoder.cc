#include "scheme/bitsandbytes/decoder.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "base/try.h"
#include "scheme/parameters.h"

namespace ballast {
namespace {

constexpr std::array<float, 16> kNf4{-1.0F,
                                     -0.6961928009986877F,
                                     -0.5250730514526367F,
                                     -0.39491748809814453F,
                                     -0.28444138169288635F,
                                     -0.18477343022823334F,
                                     -0.09105003625154495F,
                                     0.0F,
                                     0.07958029955625534F,
                                     0.16093020141124725F,
                                     0.24611230194568634F,
                                     0.33791524171829224F,
                                     0.44070982933044434F,
                                     0.5626170039176941F,
                                     0.7229568362236023F,
                                     1.0F};
constexpr std::array<float, 16> kFp4{0.0F,  0.0625F / 12,  8.0F / 12,  1.0F,  4.0F / 12,  0.5F,  2.0F / 12,  0.25F,
                                     -0.0F, -0.0625F / 12, -8.0F / 12, -1.0F, -4.0F / 12, -0.5F, -2.0F / 12, -0.25F};

class Int8Decoder final : public RowDecoder {
 public:
  Int8Decoder(const TensorInfo& codes, const TensorInfo& scales) : codes_(&codes), scales_(&scales) {}

  Result<void> decode(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    constexpr float kInverse = 1.0F / 127;
    const std::uint64_t columns = codes_->shape[1];
    std::vector<std::int8_t> codes(count * columns);
    std::vector<float> scales(count);
    TRY(model.read_into(codes_->name, first * columns, std::as_writable_bytes(std::span(codes))));
    TRY(model.read_into(scales_->name, first * sizeof(float), std::as_writable_bytes(std::span(scales))));
    for (std::uint64_t row = 0; row < count; ++row) {
      const float scale = scales[row];
      for (std::uint64_t i = row * columns; i < (row + 1) * columns; ++i)
        out[i] = static_cast<float>(codes[i]) * scale * kInverse;
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    return check_scales(model, *scales_, DType::kF32, ZeroScale::kAllowed);
  }

 private:
  const TensorInfo* codes_;
  const TensorInfo* scales_;
};

// The values of codes.
struct Maps {
  std::vector<float> codes;
  std::vector<float> scales;  // empty: scales are floats
};

class FourBitDecoder final : public RowDecoder {
 public:
  FourBitDecoder(const FourBitTensors& tensors, QuantState state) : tensors_(tensors), state_(std::move(state)) {}

  // Blocks may begin and end anywhere in a row, and so may bytes.
  Result<void> decode(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const auto maps = TRY(read_maps(model));
    const std::uint64_t columns = state_.elements / rows();
    const std::uint64_t begin = first * columns;
    const std::uint64_t end = begin + count * columns;
    const std::uint64_t first_byte = begin / 2;
    const std::uint64_t size = (end + 1) / 2 - first_byte;
    const Bytes bytes(allocate_bytes(size));
    TRY(model.read_into(tensors_.codes->name, first_byte, {bytes.get(), size}));
    const std::uint64_t first_block = begin / state_.block_size;
    std::vector<float> scales((end - 1) / state_.block_size - first_block + 1);
    TRY(read_scales(model, *maps, first_block, scales));
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t block = at / state_.block_size;
      const std::uint64_t stop = std::min(end, (block + 1) * state_.block_size);
      unpack(bytes.get(), first_byte, at, stop, *maps, scales[block - first_block], out.data() + (at - begin));
      at = stop;
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    std::vector<std::string> found;
    if (const auto maps = read_maps(model); !maps) {
      if (maps.error().code != Errc::kCorrupt) return std::unexpected(maps.error());
      found.push_back(maps.error().message);
    }
    const TensorInfo& scales = tensors_.nested_scales != nullptr ? *tensors_.nested_scales : *tensors_.scales;
    std::ranges::move(TRY(check_scales(model, scales, scales.dtype, ZeroScale::kAllowed)), std::back_inserter(found));
    return found;
  }

 private:
  std::uint64_t rows() const { return state_.elements / state_.shape.back(); }

  // Codes [begin, end), of which all but one or two fill whole bytes.
  static void unpack(const std::byte* bytes, std::uint64_t first_byte, std::uint64_t begin, std::uint64_t end, const Maps& maps,
                     float scale, float* out) {
    std::array<float, 16> values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = maps.codes[i] * scale;
    const std::byte* from = bytes + (begin / 2 - first_byte);
    if (begin % 2 != 0 && begin < end) {
      *out++ = values[std::to_integer<unsigned>(*from++) & 15U];
      ++begin;
    }
    for (; begin + 2 <= end; begin += 2, out += 2, ++from) {
      const auto pair = std::to_integer<unsigned>(*from);
      out[0] = values[pair >> 4];
      out[1] = values[pair & 15U];
    }
    if (begin < end) *out = values[std::to_integer<unsigned>(*from) >> 4];
  }

  // Scales of blocks [first, first + out.size()).
  Result<void> read_scales(const Model& model, const Maps& maps, std::uint64_t first, std::span<float> out) const {
    if (tensors_.nested_scales == nullptr) {
      return model.read_into(tensors_.scales->name, first * sizeof(float), std::as_writable_bytes(out));
    }
    std::vector<std::uint8_t> codes(out.size());
    TRY(model.read_into(tensors_.scales->name, first, std::as_writable_bytes(std::span(codes))));
    const std::uint64_t first_outer = first / state_.nested_block_size;
    std::vector<float> outer((first + out.size() - 1) / state_.nested_block_size - first_outer + 1);
    TRY(model.read_into(tensors_.nested_scales->name, first_outer * sizeof(float), std::as_writable_bytes(std::span(outer))));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = maps.scales[codes[i]] * outer[(first + i) / state_.nested_block_size - first_outer] + state_.nested_offset;
    }
    return {};
  }

  // Reads them once; a failure is not remembered.
  Result<std::shared_ptr<const Maps>> read_maps(const Model& model) const {
    const std::scoped_lock lock(mutex_);
    if (maps_ != nullptr) return maps_;
    auto maps = std::make_shared<Maps>();
    maps->codes = TRY(read_floats(model, *tensors_.map, DType::kF32));
    TRY(check_map(model, maps->codes));
    if (tensors_.nested_map != nullptr) {
      maps->scales = TRY(read_floats(model, *tensors_.nested_map, DType::kF32));
      const auto bad = std::ranges::find_if_not(maps->scales, [](float value) { return std::isfinite(value); });
      if (bad != maps->scales.end()) {
        return fail_tensor(model, *tensors_.nested_map, Errc::kCorrupt, "value {} is {}, expected a finite number",
                           bad - maps->scales.begin(), *bad);
      }
    }
    maps_ = std::move(maps);
    return maps_;
  }

  // bitsandbytes decodes by the type alone, so other values in the file would be decoded differently.
  Result<void> check_map(const Model& model, std::span<const float> map) const {
    constexpr float kClose = 1e-6F;
    const auto& expected = state_.type == "nf4" ? kNf4 : kFp4;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::abs(map[i] - expected[i]) <= kClose) continue;
      return fail_tensor(model, *tensors_.map, Errc::kCorrupt, "value {} is {}, expected {} for {}", i, map[i], expected[i],
                         state_.type);
    }
    return {};
  }

  FourBitTensors tensors_;
  QuantState state_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Maps> maps_;
};

}  // namespace

std::unique_ptr<const RowDecoder> int8_decoder(const TensorInfo& codes, const TensorInfo& scales) {
  return std::make_unique<Int8Decoder>(codes, scales);
}

std::unique_ptr<const RowDecoder> four_bit_decoder(const FourBitTensors& tensors, const QuantState& state) {
  return std::make_unique<FourBitDecoder>(tensors, state);
}

}  // namespace ballast
