#include "scheme/grouped_decoder.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/try.h"

namespace ballast {
namespace {

class GroupedDecoder final : public RowDecoder {
 public:
  explicit GroupedDecoder(Grouped grouped) : grouped_(std::move(grouped)) {}

  bool is_transposed() const override { return grouped_.codes->is_transposed(); }

  Result<void> decode(const Model& model, std::uint64_t first, std::uint64_t count, std::span<float> out) const override {
    const auto columns = TRY(read_columns(model));
    TRY(grouped_.codes->read(model, first, count, out));
    const std::uint64_t groups = grouped_.scales->groups();
    std::vector<float> scales(count * groups);
    std::vector<float> zeros(grouped_.zeros != nullptr ? count * groups : 0);
    TRY(grouped_.scales->read(model, first, count, scales));
    if (grouped_.zeros != nullptr) TRY(grouped_.zeros->read(model, first, count, zeros));
    for (std::uint64_t row = 0; row < count; ++row) {
      const std::span values = out.subspan(row * grouped_.columns, grouped_.columns);
      const float* const scale = scales.data() + row * groups;
      const float* const zero = zeros.empty() ? nullptr : zeros.data() + row * groups;
      if (columns->groups.empty()) {
        scale_groups(values, scale, zero);
      } else {
        scale_by_index(values, columns->groups, scale, zero);
      }
      for (std::size_t i = 0; i < columns->factors.size(); ++i) values[i] *= columns->factors[i];
    }
    return {};
  }

  Result<std::vector<std::string>> check_values(const Model& model) const override {
    std::vector<std::string> found = TRY(grouped_.scales->check_values(model));
    if (grouped_.zeros != nullptr) std::ranges::move(TRY(grouped_.zeros->check_values(model)), std::back_inserter(found));
    if (grouped_.column_factors != nullptr) {
      const TensorInfo& factors = *grouped_.column_factors;
      std::ranges::move(TRY(check_scales(model, factors, factors.dtype, ZeroScale::kDefect)), std::back_inserter(found));
    }
    const auto columns = read_columns(model);
    if (!columns && columns.error().code != Errc::kCorrupt) return std::unexpected(columns.error());
    if (!columns) found.push_back(columns.error().message);
    return found;
  }

 private:
  // What depends on the column only.
  struct Columns {
    std::vector<std::uint32_t> groups;  // empty: by position
    std::vector<float> factors;         // empty: none
  };

  // Reads them once; a failure is not remembered.
  Result<std::shared_ptr<const Columns>> read_columns(const Model& model) const {
    const std::scoped_lock lock(mutex_);
    if (columns_ != nullptr) return columns_;
    auto columns = std::make_shared<Columns>();
    if (grouped_.group_index != nullptr) TRY(read_groups(model, columns->groups));
    if (grouped_.column_factors != nullptr) {
      columns->factors = TRY(read_floats(model, *grouped_.column_factors, grouped_.column_factors->dtype));
    }
    columns_ = std::move(columns);
    return columns_;
  }

  Result<void> read_groups(const Model& model, std::vector<std::uint32_t>& out) const {
    const TensorInfo& index = *grouped_.group_index;
    std::vector<std::int32_t> stored(grouped_.columns);
    TRY(model.read_into(index.name, 0, std::as_writable_bytes(std::span(stored))));
    const std::uint64_t groups = grouped_.scales->groups();
    bool is_by_position = true;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const auto position = static_cast<std::int64_t>(i / grouped_.group_size);
      const std::int64_t group = stored[i] == -1 && grouped_.allows_unset ? position : stored[i];
      is_by_position = is_by_position && group == position;
      if (group < 0 || std::cmp_greater_equal(group, groups)) {
        return fail_tensor(model, index, Errc::kCorrupt, "column {} is in group {}, but there are {} groups", i, stored[i],
                           groups);
      }
      out.push_back(static_cast<std::uint32_t>(group));
    }
    if (is_by_position) out.clear();
    return {};
  }

  void scale_groups(std::span<float> values, const float* scale, const float* zero) const {
    for (std::size_t begin = 0, group = 0; begin < values.size(); begin += grouped_.group_size, ++group) {
      const std::size_t end = std::min<std::size_t>(begin + grouped_.group_size, values.size());
      const float factor = scale[group];
      if (zero == nullptr) {
        for (std::size_t i = begin; i < end; ++i) values[i] *= factor;
      } else {
        const float offset = zero[group];
        for (std::size_t i = begin; i < end; ++i) values[i] = (values[i] - offset) * factor;
      }
    }
  }

  static void scale_by_index(std::span<float> values, std::span<const std::uint32_t> groups, const float* scale,
                             const float* zero) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t group = groups[i];
      values[i] = (values[i] - (zero != nullptr ? zero[group] : 0.0F)) * scale[group];
    }
  }

  Grouped grouped_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Columns> columns_;
};

}  // namespace

std::unique_ptr<const RowDecoder> grouped_decoder(Grouped grouped) {
  return std::make_unique<GroupedDecoder>(std::move(grouped));
}

}  // namespace ballast
