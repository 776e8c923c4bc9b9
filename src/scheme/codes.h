#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// The codes of one quantized weight, as numbers before scaling.
class Codes {
 public:
  Codes() = default;
  Codes(const Codes&) = delete;
  Codes& operator=(const Codes&) = delete;
  virtual ~Codes() = default;

  // Reads whole rows; `out` has exactly their size.
  virtual Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const = 0;
  virtual bool is_transposed() const { return false; }
};

// One element per code: I8, or any float of 8 bits or more. `dtype` is what the elements are, for tensors of raw bytes. Stored
// rows may be longer than `columns`; 0 bytes means that they are not.
std::unique_ptr<const Codes> element_codes(const TensorInfo& tensor, DType dtype, std::uint64_t columns,
                                           std::uint64_t row_bytes = 0);

// Rows of unsigned codes, lowest bits first, minus `offset`. Words of 32 bits hold `per_word` codes each, or, if that is 0, form
// one stream.
struct Packing {
  std::uint64_t columns = 0;
  std::uint64_t row_bytes = 0;
  unsigned bits = 4;      // 1 to 8
  unsigned per_word = 0;  // for codes that do not cross words
  unsigned offset = 0;
};
std::unique_ptr<const Codes> packed_codes(const TensorInfo& tensor, const Packing& packing);

// Rows of 4-bit codes with a value for each code, two in a byte.
enum class Nibbles : std::uint8_t { kLowFirst, kHighFirst };
using NibbleTable = std::array<float, 16>;
extern const NibbleTable kE2M1;
std::unique_ptr<const Codes> nibble_codes(const TensorInfo& tensor, std::uint64_t columns, std::uint64_t row_bytes, Nibbles order,
                                          const NibbleTable& table);

}  // namespace ballast
