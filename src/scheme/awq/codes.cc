#include "scheme/awq/codes.h"

#include <array>
#include <string>
#include <vector>

#include "base/try.h"
#include "scheme/transposed.h"

namespace ballast {
namespace {

constexpr std::uint64_t kPerWord = 8;
constexpr std::array<unsigned, kPerWord> kShifts{0, 16, 4, 20, 8, 24, 12, 28};  // of the codes of rows 0 to 7

// Rows [first, first + count), each as long as the tensor has rows.
Result<void> read_rows(const Model& model, const TensorInfo& tensor, std::uint64_t first, std::uint64_t count,
                       std::span<float> out) {
  const std::uint64_t length = tensor.shape[0];
  const std::uint64_t begin = first / kPerWord;
  const std::uint64_t words = (first + count - 1) / kPerWord - begin + 1;
  const Words codes = transposed(TRY(read_words(model, tensor, begin, words)), words);
  for (std::uint64_t row = first; row < first + count; ++row) {
    const std::uint32_t* const from = codes.data() + (row / kPerWord - begin) * length;
    float* const to = out.data() + (row - first) * length;
    const unsigned shift = kShifts[row % kPerWord];
    for (std::uint64_t i = 0; i < length; ++i) to[i] = static_cast<float>(static_cast<int>(from[i] >> shift & 15U));
  }
  return {};
}

class AwqCodes final : public Codes {
 public:
  explicit AwqCodes(const TensorInfo& tensor) : tensor_(&tensor) {}

  bool is_transposed() const override { return true; }
  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    return read_rows(model, *tensor_, first, count, out);
  }

 private:
  const TensorInfo* tensor_;
};

class AwqZeros final : public Parameters {
 public:
  explicit AwqZeros(const TensorInfo& tensor) : tensor_(&tensor) {}

  std::uint64_t groups() const override { return tensor_->shape[0]; }
  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    return read_rows(model, *tensor_, first, count, out);
  }
  // Every code is a valid zero point.
  Result<std::vector<std::string>> check_values(const Model&) const override { return std::vector<std::string>{}; }

 private:
  const TensorInfo* tensor_;
};

}  // namespace

std::unique_ptr<const Codes> awq_codes(const TensorInfo& tensor) { return std::make_unique<AwqCodes>(tensor); }
std::unique_ptr<const Parameters> awq_zeros(const TensorInfo& tensor) { return std::make_unique<AwqZeros>(tensor); }

}  // namespace ballast
