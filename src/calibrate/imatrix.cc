#include "calibrate/imatrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/statistics_table.h"
#include "format/gguf/header.h"
#include "scheme/gguf/names.h"

namespace ballast {
namespace {

constexpr std::string_view kSums = ".in_sum2";
constexpr std::string_view kCounts = ".counts";

class ImatrixReader {
 public:
  ImatrixReader(const Source& source, const gguf::Table& table) : source_(source), table_(table) {}

  Result<Imatrix> read() {
    const gguf::Value* const type = table_.find("general.type");
    if (type == nullptr || type->as_string() != "imatrix") {
      return fail(Errc::kUnsupported, "not an importance matrix: general.type is not 'imatrix'; make one with llama-imatrix");
    }
    for (const gguf::Tensor& tensor : table_.tensors) {
      if (!tensor.name.ends_with(kSums)) continue;
      const std::string_view weight = tensor.name.substr(0, tensor.name.size() - kSums.size());
      if (auto added = add(weight, tensor); !added) return fail_at(fmt::format("tensor {}", quote(tensor.name)), added.error());
    }
    if (found_.tensors.empty()) return fail(Errc::kCorrupt, "no tensor is named *{}", kSums);
    return std::move(found_);
  }

 private:
  // [experts, columns] sums of squares, and [experts, 1] counts.
  Result<void> add(std::string_view weight, const gguf::Tensor& sums) {
    const std::string counts_name = std::string(weight).append(kCounts);
    const auto counts = std::ranges::find(table_.tensors, counts_name, &gguf::Tensor::name);
    if (counts == table_.tensors.end()) return fail(Errc::kCorrupt, "{} is missing", quote(counts_name));
    const auto matrices = TRY(check_shape(sums, *counts));
    const std::vector<float> squares = TRY(read_values(sums));
    const std::vector<float> inputs = TRY(read_values(*counts));
    const std::size_t columns = squares.size() / matrices;
    for (std::size_t i = 0; i < matrices; ++i) {
      if (inputs[i] == 0) continue;  // an expert that no token chose
      const std::string name = matrices == 1 ? std::string(weight) : fmt::format("{}[{}]", weight, i);
      std::vector<float> means(squares.begin() + static_cast<std::ptrdiff_t>(i * columns),
                               squares.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
      for (float& mean : means) mean /= inputs[i];
      add_tensor(name, Statistic::kSquareMean, means);
      add_tensor(name, Statistic::kCount, {inputs[i]});
      found_.names[name] = matrices == 1 ? gguf::matrix_names(weight) : gguf::expert_names(weight, i);
    }
    return {};
  }

  static Result<std::size_t> check_shape(const gguf::Tensor& sums, const gguf::Tensor& counts) {
    if (sums.type->name != "F32" || counts.type->name != "F32") {
      return fail(Errc::kUnsupported, "types are {} and {}, expected F32", sums.type->name, counts.type->name);
    }
    if (sums.shape.empty() || sums.shape.size() > 2 || sums.shape.back() == 0 || sums.end == sums.begin) {
      return fail(Errc::kCorrupt, "shape is {}, expected [matrices, columns]", to_string(sums.shape));
    }
    const std::uint64_t matrices = sums.shape.size() == 2 ? sums.shape.front() : 1;
    if (counts.end - counts.begin != matrices * sizeof(float)) {
      return fail(Errc::kCorrupt, "{} matrices, but {} has shape {}", matrices, quote(counts.name), to_string(counts.shape));
    }
    return matrices;
  }

  Result<std::vector<float>> read_values(const gguf::Tensor& tensor) const {
    std::vector<float> values((tensor.end - tensor.begin) / sizeof(float));
    TRY(source_.read_at(table_.data_start + tensor.begin, std::as_writable_bytes(std::span(values))));
    const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value) || value < 0; });
    if (bad == values.end()) return values;
    return fail(Errc::kCorrupt, "value {} of {} is {}, expected a number of at least 0", bad - values.begin(), quote(tensor.name),
                *bad);
  }

  void add_tensor(std::string_view weight, Statistic statistic, const std::vector<float>& values) {
    Tensor tensor(fmt::format("{}.{}", weight, name(statistic)), DType::kF32, {values.size()}, values.size() * sizeof(float));
    std::memcpy(tensor.bytes().data(), values.data(), tensor.bytes().size());
    found_.tensors.push_back(std::move(tensor));
  }

  const Source& source_;
  const gguf::Table& table_;
  Imatrix found_;
};

}  // namespace

bool is_imatrix(const std::string& path) { return path.ends_with(".gguf"); }

Result<Imatrix> read_imatrix(const Source& source) {
  const auto header = TRY(gguf::read_header(source));
  return ImatrixReader(source, header.table).read();
}

}  // namespace ballast
