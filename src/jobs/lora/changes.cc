#include "jobs/lora/changes.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include <ballast/convert.h>

#include "base/try.h"
#include "quantize/products.h"

namespace ballast {
namespace {

std::vector<float> transposed_matrix(const std::vector<float>& matrix, std::uint64_t columns) {
  std::vector<float> result(matrix.size());
  const std::uint64_t rows = matrix.size() / columns;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) result[column * rows + row] = matrix[row * columns + column];
  }
  return result;
}

}  // namespace

// The matrices of a pair as they are multiplied: [rows, rank] · [rank, columns].
struct LoraFactors {
  const LoraPair* pair = nullptr;
  std::vector<float> left;
  std::vector<float> right;
};

class LoraCache {
 public:
  Result<std::shared_ptr<const LoraFactors>> get(const Model& adapter, const LoraPair& pair, bool is_transposed) {
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& factors : last_) {
        if (factors && factors->pair == &pair) return factors;
      }
    }
    auto factors = std::make_shared<LoraFactors>();
    factors->pair = &pair;
    factors->left = TRY(adapter.read<float>(pair.up->name));
    factors->right = TRY(adapter.read<float>(pair.down->name));
    if (is_transposed) {
      factors->left = transposed_matrix(factors->left, pair.rank());
      factors->right = transposed_matrix(factors->right, factors->right.size() / pair.rank());
      std::swap(factors->left, factors->right);
    }
    const std::scoped_lock lock(mutex_);
    last_[next_++ % last_.size()] = factors;
    return std::shared_ptr<const LoraFactors>(std::move(factors));
  }

 private:
  std::mutex mutex_;
  std::array<std::shared_ptr<const LoraFactors>, 4> last_;
  std::size_t next_ = 0;
};

std::shared_ptr<LoraCache> make_lora_cache() { return std::make_shared<LoraCache>(); }

namespace {

class LowRankChange final : public ValueChange {
 public:
  LowRankChange(std::shared_ptr<const LoraAdapter> adapter, const LoraPair& pair, bool is_transposed, std::uint64_t columns,
                std::shared_ptr<LoraCache> cache)
      : adapter_(std::move(adapter)),
        pair_(pair),
        is_transposed_(is_transposed),
        columns_(columns),
        scale_(static_cast<float>(pair.scale)),
        cache_(std::move(cache)) {}

  Result<void> apply(std::uint64_t first, std::span<float> values) const override {
    constexpr std::uint64_t kTile = std::uint64_t{1} << 16;  // values
    const auto factors = TRY(cache_->get(adapter_->model, pair_, is_transposed_));
    std::vector<float> sums;
    while (!values.empty()) {
      const std::uint64_t skip = first % columns_;
      const bool is_whole = skip == 0 && values.size() >= columns_;
      const std::uint64_t width = is_whole ? columns_ : std::min<std::uint64_t>(values.size(), columns_ - skip);
      const std::uint64_t rows = is_whole ? std::clamp<std::uint64_t>(kTile / columns_, 1, values.size() / columns_) : 1;
      sums.assign(rows * width, 0.0F);
      multiply(*factors, {.row = first / columns_, .rows = rows, .column = skip, .width = width}, sums);
      for (std::size_t i = 0; i < sums.size(); ++i) values[i] += scale_ * sums[i];
      first += sums.size();
      values = values.subspan(sums.size());
    }
    return {};
  }

 private:
  struct Part {
    std::uint64_t row;
    std::uint64_t rows;
    std::uint64_t column;
    std::uint64_t width;
  };

  void multiply(const LoraFactors& factors, const Part& part, std::span<float> sums) const {
    std::vector<const float*> left;
    std::vector<float*> to;
    for (std::uint64_t row = 0; row < part.rows; ++row) {
      left.push_back(factors.left.data() + (part.row + row) * pair_.rank());
      to.push_back(sums.data() + row * part.width);
    }
    add_products({.left = left,
                  .right = factors.right.data() + part.column,
                  .right_stride = columns_,
                  .terms = pair_.rank(),
                  .sums = to,
                  .width = part.width});
  }

  std::shared_ptr<const LoraAdapter> adapter_;
  const LoraPair& pair_;  // of the adapter
  bool is_transposed_;
  std::uint64_t columns_;
  float scale_;
  std::shared_ptr<LoraCache> cache_;
};

class ReplacingChange final : public ValueChange {
 public:
  ReplacingChange(std::shared_ptr<const LoraAdapter> adapter, const TensorInfo& tensor)
      : adapter_(std::move(adapter)), tensor_(tensor) {}

  Result<void> apply(std::uint64_t first, std::span<float> values) const override {
    const std::uint64_t size = bits(tensor_.dtype) / 8;
    std::vector<std::byte> stored(values.size() * size);
    TRY(adapter_->model.read_into(tensor_.name, first * size, stored));
    TRY(convert_values(tensor_.dtype, stored, DType::kF32, std::as_writable_bytes(values)));
    return {};
  }

 private:
  std::shared_ptr<const LoraAdapter> adapter_;
  const TensorInfo& tensor_;
};

}  // namespace

std::unique_ptr<const ValueChange> low_rank_change(std::shared_ptr<const LoraAdapter> adapter, const LoraPair& pair,
                                                   bool is_transposed, std::uint64_t columns, std::shared_ptr<LoraCache> cache) {
  return std::make_unique<LowRankChange>(std::move(adapter), pair, is_transposed, columns, std::move(cache));
}

std::unique_ptr<const ValueChange> replacing_change(std::shared_ptr<const LoraAdapter> adapter, const TensorInfo& tensor) {
  return std::make_unique<ReplacingChange>(std::move(adapter), tensor);
}

}  // namespace ballast
