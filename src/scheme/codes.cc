#include "scheme/codes.h"

#include <cstring>
#include <vector>

#include <ballast/convert.h>

#include "base/bytes.h"
#include "base/try.h"

namespace ballast {
namespace {

Result<Bytes> read_bytes(const Model& model, const TensorInfo& tensor, std::uint64_t offset, std::uint64_t size) {
  Bytes bytes(allocate_bytes(size));
  TRY(model.read_into(tensor.name, offset, {bytes.get(), size}));
  return bytes;
}

class ElementCodes final : public Codes {
 public:
  ElementCodes(const TensorInfo& tensor, DType dtype, std::uint64_t columns, std::uint64_t row_bytes)
      : tensor_(&tensor), dtype_(dtype), value_bytes_(columns * bits(dtype) / 8), row_bytes_(row_bytes) {}

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const Bytes bytes = TRY(read_bytes(model, *tensor_, first * row_bytes_, count * row_bytes_));
    if (value_bytes_ != row_bytes_) {
      for (std::uint64_t row = 1; row < count; ++row) {
        std::memmove(bytes.get() + row * value_bytes_, bytes.get() + row * row_bytes_, value_bytes_);
      }
    }
    TRY(convert_values(dtype_, {bytes.get(), count * value_bytes_}, DType::kF32, std::as_writable_bytes(out)));
    return {};
  }

 private:
  const TensorInfo* tensor_;
  DType dtype_;
  std::uint64_t value_bytes_;
  std::uint64_t row_bytes_;
};

class PackedCodes final : public Codes {
 public:
  PackedCodes(const TensorInfo& tensor, const Packing& packing) : tensor_(&tensor), packing_(packing) {}

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const std::uint64_t row_bytes = packing_.row_bytes;
    const Bytes bytes = TRY(read_bytes(model, *tensor_, first * row_bytes, count * row_bytes));
    for (std::uint64_t row = 0; row < count; ++row) {
      unpack(bytes.get() + row * row_bytes, out.subspan(row * packing_.columns, packing_.columns));
    }
    return {};
  }

 private:
  void unpack(const std::byte* row, std::span<float> out) const {
    const unsigned width = packing_.bits;
    const unsigned mask = (1U << width) - 1;
    const auto offset = static_cast<int>(packing_.offset);
    for (std::uint64_t i = 0; i < out.size(); ++i) {
      const std::uint64_t bit = packing_.per_word == 0 ? i * width : i / packing_.per_word * 32 + i % packing_.per_word * width;
      unsigned code = std::to_integer<unsigned>(row[bit / 8]) >> (bit % 8);
      if (bit % 8 + width > 8) code |= std::to_integer<unsigned>(row[bit / 8 + 1]) << (8 - bit % 8);
      out[i] = static_cast<float>(static_cast<int>(code & mask) - offset);
    }
  }

  const TensorInfo* tensor_;
  Packing packing_;
};

class NibbleCodes final : public Codes {
 public:
  NibbleCodes(const TensorInfo& tensor, std::uint64_t columns, std::uint64_t row_bytes, Nibbles order, const NibbleTable& table)
      : tensor_(&tensor), columns_(columns), row_bytes_(row_bytes), order_(order), table_(table) {}

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const Bytes bytes = TRY(read_bytes(model, *tensor_, first * row_bytes_, count * row_bytes_));
    const unsigned early = order_ == Nibbles::kLowFirst ? 0 : 4;
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::byte* const codes = bytes.get() + row * row_bytes_;
      float* const values = out.data() + row * columns_;
      for (std::uint64_t i = 0; i < columns_; ++i) {
        const unsigned shift = i % 2 == 0 ? early : 4 - early;
        values[i] = table_[std::to_integer<unsigned>(codes[i / 2]) >> shift & 15U];
      }
    }
    return {};
  }

 private:
  const TensorInfo* tensor_;
  std::uint64_t columns_;
  std::uint64_t row_bytes_;
  Nibbles order_;
  NibbleTable table_;
};

}  // namespace

const NibbleTable kE2M1{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

std::unique_ptr<const Codes> element_codes(const TensorInfo& tensor, DType dtype, std::uint64_t columns,
                                           std::uint64_t row_bytes) {
  return std::make_unique<ElementCodes>(tensor, dtype, columns, row_bytes == 0 ? columns * bits(dtype) / 8 : row_bytes);
}

std::unique_ptr<const Codes> packed_codes(const TensorInfo& tensor, const Packing& packing) {
  return std::make_unique<PackedCodes>(tensor, packing);
}

std::unique_ptr<const Codes> nibble_codes(const TensorInfo& tensor, std::uint64_t columns, std::uint64_t row_bytes, Nibbles order,
                                          const NibbleTable& table) {
  return std::make_unique<NibbleCodes>(tensor, columns, row_bytes, order, table);
}

}  // namespace ballast
