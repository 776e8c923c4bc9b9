#include "calibrate/forward/linear.h"

#include <algorithm>

#include <ballast/convert.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "calibrate/forward/kernels.h"

namespace ballast {
namespace {

constexpr std::uint64_t kPiece = std::uint64_t{1} << 22;  // values that are read and converted at once

}  // namespace

Result<void> LinearReader::read(const MatrixPlace& place, std::span<float> out) const {
  const auto fail_here = [&](Errc code, const std::string& message) {
    return fail(code, "{}: tensor {}: {}", escape(model_.path()), quote(place.tensor), message);
  };
  const TensorInfo* const tensor = model_.find(place.tensor);
  if (tensor == nullptr) return fail(Errc::kCorrupt, "{}: no tensor {}", escape(model_.path()), quote(place.tensor));
  if (!std::ranges::equal(tensor->shape, place.shape)) {
    return fail_here(Errc::kCorrupt,
                     fmt::format("shape {}, the config implies {}", to_string(tensor->shape), to_string(place.shape)));
  }
  if (info(tensor->dtype).kind != NumberKind::kFloat || bits(tensor->dtype) < 8) {
    return fail_here(Errc::kUnsupported, fmt::format("cannot compute with {}", name(tensor->dtype)));
  }
  const std::uint64_t bytes = bits(tensor->dtype) / 8;
  const std::uint64_t rows_at_once =
      std::clamp<std::uint64_t>(kPiece / place.columns, 1, ceil_div(place.rows, thread_count(threads_)));
  return try_parallel(ceil_div(place.rows, rows_at_once), threads_, [&](unsigned, std::size_t i) -> Result<void> {
    const std::uint64_t first = i * rows_at_once;
    const std::uint64_t count = std::min(rows_at_once, place.rows - first) * place.columns;
    const auto values = out.subspan(first * place.columns, count);
    const std::uint64_t offset = (place.first_row + first) * place.columns * bytes;
    if (tensor->dtype == DType::kF32) {
      TRY(model_.read_into(place.tensor, offset, std::as_writable_bytes(values)));
    } else {
      std::vector<std::byte> stored(count * bytes);
      TRY(model_.read_into(place.tensor, offset, stored));
      TRY(convert_values(tensor->dtype, stored, DType::kF32, std::as_writable_bytes(values)));
    }
    if (all_finite(values)) return {};
    return fail_here(Errc::kCorrupt, "has values that are NaN or infinite; 'ballast inspect --stats' counts them");
  });
}

Result<std::vector<float>> LinearReader::vector(const std::string& tensor, std::uint64_t size) const {
  std::vector<float> values(size);
  TRY(read({.tensor = tensor, .rows = 1, .columns = size, .shape = {size}}, values));
  return values;
}

Result<Linear> LinearReader::linear(const MatrixPlace& place) const {
  Linear linear{.place = place, .out = place.rows, .in = place.columns};
  linear.weight.resize(place.rows * place.columns);
  TRY(read(place, linear.weight));
  return linear;
}

Result<Linear> LinearReader::linear(const std::string& module, std::uint64_t out, std::uint64_t in) const {
  Linear made = TRY(linear({.tensor = module + ".weight", .rows = out, .columns = in, .shape = {out, in}}));
  if (const std::string bias = module + ".bias"; has(bias)) made.bias = TRY(vector(bias, out));
  return made;
}

void ParallelProducts::run(const Linear& linear, const float* inputs, std::uint64_t tokens, float* outputs) const {
  const auto multiply = [&](std::uint64_t token, std::uint64_t rows, std::uint64_t column, std::uint64_t columns) {
    blas.multiply_transposed(rows, columns, linear.in, {.values = inputs + token * linear.in, .stride = linear.in},
                             {.values = linear.weight.data() + column * linear.in, .stride = linear.in}, 1.0F,
                             outputs + token * linear.out + column, linear.out);
    if (linear.bias.empty()) return;
    for (std::uint64_t row = token; row < token + rows; ++row) {
      add_scaled({outputs + row * linear.out + column, columns}, linear.bias.data() + column, 1.0F);
    }
  };
  // Every thread copies the other matrix for itself, so the longer side of the result is divided, in multiples of what the
  // kernels of BLAS take at once.
  constexpr std::uint64_t kLeast = 16;
  const bool by_token = tokens >= linear.out;
  const std::uint64_t side = by_token ? tokens : linear.out;
  const std::uint64_t share = ceil_div(ceil_div(side, thread_count(threads)), kLeast) * kLeast;
  parallel_for(ceil_div(side, share), threads, [&](unsigned, std::size_t i) {
    const std::uint64_t first = i * share;
    const std::uint64_t count = std::min(share, side - first);
    by_token ? multiply(first, count, 0, linear.out) : multiply(0, tokens, first, count);
    return true;
  });
}

}  // namespace ballast
