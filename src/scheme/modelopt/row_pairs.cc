#include "scheme/modelopt/row_pairs.h"

#include <vector>

#include "base/try.h"

namespace ballast {
namespace {

class RowPairCodes final : public Codes {
 public:
  RowPairCodes(const TensorInfo& tensor, std::uint64_t columns, const NibbleTable& table)
      : tensor_(&tensor), columns_(columns), table_(table) {}

  Result<void> read(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const std::uint64_t begin = first / 2;
    const std::uint64_t pairs = (first + count - 1) / 2 - begin + 1;
    std::vector<std::byte> bytes(pairs * columns_);
    TRY(model.read_into(tensor_->name, begin * columns_, bytes));
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::uint64_t from = first + row;
      const unsigned shift = from % 2 == 0 ? 0 : 4;
      const std::byte* const codes = bytes.data() + (from / 2 - begin) * columns_;
      float* const values = out.data() + row * columns_;
      for (std::uint64_t i = 0; i < columns_; ++i) values[i] = table_[std::to_integer<unsigned>(codes[i]) >> shift & 15U];
    }
    return {};
  }

 private:
  const TensorInfo* tensor_;
  std::uint64_t columns_;
  NibbleTable table_;
};

}  // namespace

const NibbleTable kInt4{0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

std::unique_ptr<const Codes> row_pair_codes(const TensorInfo& tensor, std::uint64_t columns, const NibbleTable& table) {
  return std::make_unique<RowPairCodes>(tensor, columns, table);
}

}  // namespace ballast
