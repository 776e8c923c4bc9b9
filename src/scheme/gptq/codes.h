#pragma once

#include <cstdint>
#include <memory>

#include <ballast/model.h>

#include "scheme/codes.h"
#include "scheme/parameters.h"

namespace ballast {

// How codes are packed into words of 32 bits: always 32 codes in `bits` words. They form one stream, lowest bits first, or, if
// `planes` is set, planes of 4, 2 and 1 bits.
struct GptqPacking {
  unsigned bits = 4;  // 2, 3, 4 or 8; with planes up to 8
  bool planes = false;
};

// Unpacks 32 codes.
void unpack_gptq(const std::uint32_t* words, const GptqPacking& packing, float* codes);

// How zero points are stored.
enum class GptqZeros : std::uint8_t {
  kSame,
  kMinusOne,
  kMinusOneInWords,  // 1 was subtracted from every code, with borrow between the codes of a word
};

// The values of sym and zeros that a config promises are checked by check_values() only.
struct GptqZeroPoints {
  const TensorInfo* tensor = nullptr;  // [groups, words]
  GptqPacking packing;
  GptqZeros stored = GptqZeros::kMinusOne;
  bool is_symmetric = false;  // all are half of the range
};

// The codes of an I32 matrix [words, rows of the weight].
std::unique_ptr<const Codes> gptq_codes(const TensorInfo& tensor, const GptqPacking& packing);
std::unique_ptr<const Parameters> gptq_zeros(const GptqZeroPoints& zeros);

}  // namespace ballast
