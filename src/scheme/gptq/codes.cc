#include "scheme/gptq/codes.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/text.h"
#include "base/try.h"
#include "scheme/transposed.h"

namespace ballast {
namespace {

constexpr unsigned kBlock = 32;     // codes
constexpr unsigned kMostWords = 8;  // of a block

// Codes of 2, 4 or 8 bits.
template <unsigned kBits>
void unpack_words(const std::uint32_t* words, float* codes) {
  constexpr unsigned kPerWord = 32 / kBits;
  constexpr std::uint32_t kMask = (1U << kBits) - 1;
  for (unsigned word = 0; word < kBits; ++word) {
    for (unsigned i = 0; i < kPerWord; ++i) {
      codes[word * kPerWord + i] = static_cast<float>(static_cast<int>(words[word] >> (i * kBits) & kMask));
    }
  }
}

// The 22nd code begins in the second word and ends in the third.
void unpack_3_bits(const std::uint32_t* words, float* codes) {
  constexpr unsigned kInTwoWords = 21;
  const std::uint64_t low = words[0] | std::uint64_t{words[1]} << 32;
  const std::uint64_t high = low >> 63 | std::uint64_t{words[2]} << 1;
  for (unsigned i = 0; i < kInTwoWords; ++i) codes[i] = static_cast<float>(static_cast<int>(low >> (3 * i) & 7U));
  for (unsigned i = kInTwoWords; i < kBlock; ++i) {
    codes[i] = static_cast<float>(static_cast<int>(high >> (3 * (i - kInTwoWords)) & 7U));
  }
}

// Planes with the lowest bits come first.
void unpack_planes(const std::uint32_t* words, unsigned bits, float* codes) {
  std::array<std::uint32_t, kBlock> all{};
  unsigned done = 0;
  for (const unsigned width : {8U, 4U, 2U, 1U}) {
    if (bits - done < width) continue;
    const std::uint32_t mask = (1U << width) - 1;
    for (unsigned i = 0; i < kBlock; ++i) all[i] |= (words[done + i * width / 32] >> (i * width % 32) & mask) << done;
    done += width;
  }
  for (unsigned i = 0; i < kBlock; ++i) codes[i] = static_cast<float>(static_cast<int>(all[i]));
}

class GptqCodes final : public Codes {
 public:
  GptqCodes(const TensorInfo& tensor, const GptqPacking& packing) : tensor_(&tensor), packing_(packing) {}

  bool is_transposed() const override { return true; }

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const std::uint64_t row_words = tensor_->shape[0];
    const std::uint64_t columns = row_words * kBlock / packing_.bits;
    const Words words = transposed(TRY(read_words(model, *tensor_, first, count)), count);
    const std::uint64_t blocks = row_words / packing_.bits;
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::uint32_t* from = words.data() + row * row_words;
      float* to = out.data() + row * columns;
      for (std::uint64_t block = 0; block < blocks; ++block, from += packing_.bits, to += kBlock) unpack_gptq(from, packing_, to);
      if (columns % kBlock == 0) continue;
      std::array<std::uint32_t, kMostWords> last{};
      std::array<float, kBlock> codes{};
      std::copy_n(from, row_words % packing_.bits, last.begin());
      unpack_gptq(last.data(), packing_, codes.data());
      std::copy_n(codes.begin(), columns % kBlock, to);
    }
    return {};
  }

 private:
  const TensorInfo* tensor_;
  GptqPacking packing_;
};

class GptqZeroParameters final : public Parameters {
 public:
  explicit GptqZeroParameters(const GptqZeroPoints& zeros) : zeros_(zeros) {}

  std::uint64_t groups() const override { return zeros_.tensor->shape[0]; }

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const unsigned bits = zeros_.packing.bits;
    const std::uint64_t all = zeros_.tensor->shape[1];
    const std::uint64_t begin = first / kBlock;
    const std::uint64_t blocks = (first + count - 1) / kBlock - begin + 1;
    const std::uint64_t row_words = std::min(blocks * bits, all - begin * bits);
    Words words = TRY(read_words(model, *zeros_.tensor, begin * bits, row_words));
    const std::uint32_t ones = addend();
    for (std::uint32_t& word : words) word += ones;
    std::array<std::uint32_t, kMostWords> block_words{};
    std::array<float, kBlock> codes{};
    for (std::uint64_t group = 0; group < groups(); ++group) {
      for (std::uint64_t block = 0; block < blocks; ++block) {
        const std::uint64_t word = block * bits;
        std::copy_n(words.data() + group * row_words + word, std::min<std::uint64_t>(bits, row_words - word),
                    block_words.begin());
        unpack_gptq(block_words.data(), zeros_.packing, codes.data());
        const std::uint64_t row = (begin + block) * kBlock;  // of the first code
        const std::uint64_t last = std::min(row + kBlock, first + count);
        for (std::uint64_t i = std::max(row, first); i < last; ++i) {
          out[(i - first) * groups() + group] = zero_point(codes[i - row]);
        }
      }
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    constexpr std::uint64_t kPiece = 1024;
    const unsigned bits = zeros_.packing.bits;
    const std::uint64_t rows = zeros_.tensor->shape[1] * kBlock / bits;
    const auto half = static_cast<float>(1U << (bits - 1));
    const auto largest = static_cast<float>(1U << bits);
    std::uint64_t odd = 0;
    std::uint64_t ambiguous = 0;
    std::vector<float> values;
    for (std::uint64_t row = 0; row < rows; row += kPiece) {
      const std::uint64_t count = std::min(kPiece, rows - row);
      values.resize(count * groups());
      TRY(read(model, row, count, values));
      odd += values.size() - static_cast<std::uint64_t>(std::ranges::count(values, half));
      ambiguous += static_cast<std::uint64_t>(std::ranges::count(values, largest));
    }
    std::vector<std::string> messages;
    if (zeros_.is_symmetric && odd > 0) {
      messages.push_back(fmt::format("tensor {}: sym is true, but {} of {} zero points are not {}", quote(zeros_.tensor->name),
                                     odd, rows * groups(), half));
    }
    if (ambiguous > 0) {
      messages.push_back(
          fmt::format("tensor {}: {} of {} zero points are stored as {}, which some programs read as {}, others as 0",
                      quote(zeros_.tensor->name), ambiguous, rows * groups(), largest - 1, largest));
    }
    return messages;
  }

 private:
  // What whole words are short of; 0 unless codes fill words evenly.
  std::uint32_t addend() const {
    if (zeros_.stored != GptqZeros::kMinusOneInWords || 32 % zeros_.packing.bits != 0) return 0;
    std::uint32_t ones = 0;
    for (unsigned bit = 0; bit < 32; bit += zeros_.packing.bits) ones |= 1U << bit;
    return ones;
  }

  float zero_point(float stored) const {
    if (zeros_.stored == GptqZeros::kSame || addend() != 0) return stored;
    const bool wraps =
        zeros_.stored == GptqZeros::kMinusOneInWords && stored == static_cast<float>((1U << zeros_.packing.bits) - 1);
    return wraps ? 0.0F : stored + 1;
  }

  GptqZeroPoints zeros_;
};

}  // namespace

void unpack_gptq(const std::uint32_t* words, const GptqPacking& packing, float* codes) {
  switch (packing.bits) {
    case 2: return unpack_words<2>(words, codes);
    case 4: return unpack_words<4>(words, codes);
    case 8: return unpack_words<8>(words, codes);
    default: return packing.planes ? unpack_planes(words, packing.bits, codes) : unpack_3_bits(words, codes);
  }
}

std::unique_ptr<const Codes> gptq_codes(const TensorInfo& tensor, const GptqPacking& packing) {
  return std::make_unique<GptqCodes>(tensor, packing);
}

std::unique_ptr<const Parameters> gptq_zeros(const GptqZeroPoints& zeros) { return std::make_unique<GptqZeroParameters>(zeros); }

}  // namespace ballast
