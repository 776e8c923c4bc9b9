#include <algorithm>
#include <mutex>
#include <optional>

#include <ballast/convert.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/try.h"
#include "model/state.h"

namespace ballast {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;  // per read; a whole number of values of every convertible dtype

// The size of `elements` values. Fails if they do not fill whole bytes, which can happen with F4.
Result<std::uint64_t> bytes_of(std::uint64_t elements, DType dtype) {
  const auto bits_in_all = checked_mul(elements, bits(dtype));
  if (!bits_in_all) return fail(Errc::kUnsupported, "the size of {} values of {} overflows 64 bits", elements, name(dtype));
  if (*bits_in_all % 8 != 0) {
    return fail(Errc::kUnsupported, "{} values of {} do not fill whole bytes", elements, name(dtype));
  }
  return *bits_in_all / 8;
}

Result<std::uint64_t> converted_bytes(const TensorInfo& tensor, DType dtype) {
  if (!can_convert(tensor.dtype, dtype)) {
    return fail(Errc::kUnsupported, "cannot convert {} to {}", name(tensor.dtype), name(dtype));
  }
  return bytes_of(tensor.elements(), dtype);
}

// Adds the losses of a block to the total.
void merge(ConversionLoss& all, const ConversionLoss& block, std::uint64_t first_of_block) {
  if (block.count == 0) return;
  const std::uint64_t first = first_of_block + block.first;
  all.first = all.count == 0 ? first : std::min(all.first, first);
  all.count += block.count;
}

// [d0, product of the rest]. The product may overflow even if the tensor is empty: [0, 2^63, 4].
Result<std::vector<std::uint64_t>> matrix_shape(Shape shape) {
  if (shape.empty()) return std::vector<std::uint64_t>{1, 1};
  const auto columns = checked_elements(shape.subspan(1));
  if (!columns) return fail(Errc::kUnsupported, "the number of matrix columns overflows 64 bits");
  return std::vector<std::uint64_t>{shape.front(), *columns};
}

}  // namespace

Result<void> Model::State::read_as_into(const TensorInfo& tensor, DType dtype, std::span<std::byte> out, OnLoss on_loss) const {
  const auto here = [&](const Error& error) { return error_in(tensor, error); };
  if (tensor.dtype == dtype) {
    if (auto read = source(tensor).read_at(position(tensor), out); !read) return here(read.error());
    return {};
  }

  const std::uint64_t block_values = kReadBytes * 8 / bits(tensor.dtype);
  const std::uint64_t out_block = block_values * bits(dtype) / 8;
  const std::size_t blocks = tensor.bytes() / kReadBytes + (tensor.bytes() % kReadBytes != 0 ? 1 : 0);
  const unsigned threads = std::max(thread_count(0), source(tensor).parallel_reads());
  std::vector<Bytes> buffers(threads);
  std::mutex mutex;
  ConversionLoss loss;
  const auto done = try_parallel(blocks, threads, [&](unsigned worker, std::size_t i) -> Result<void> {
    if (!buffers[worker]) buffers[worker].reset(allocate_bytes(kReadBytes));
    const std::uint64_t begin = i * kReadBytes;
    const std::span in(buffers[worker].get(), std::min<std::uint64_t>(kReadBytes, tensor.bytes() - begin));
    const std::span to = out.subspan(i * out_block, std::min(out_block, out.size() - i * out_block));
    TRY(source(tensor).read_at(position(tensor) + begin, in));
    const ConversionLoss lost = TRY(convert_values(tensor.dtype, in, dtype, to));
    const std::scoped_lock lock(mutex);
    merge(loss, lost, i * block_values);
    return {};
  });
  if (!done) return here(done.error());
  if (loss.count > 0 && on_loss == OnLoss::kRefuse) {
    return here({.code = Errc::kUnsupported,
                 .message = fmt::format("{} of {} values of {} cannot be represented as {}, the first at index {}", loss.count,
                                        tensor.elements(), name(tensor.dtype), name(dtype), loss.first)});
  }
  return {};
}

Result<Tensor> Model::State::read_as(const TensorInfo& tensor, DType dtype, std::vector<std::uint64_t> shape,
                                     OnLoss on_loss) const {
  const auto bytes = converted_bytes(tensor, dtype);
  if (!bytes) return error_in(tensor, bytes.error());
  Tensor out(std::string(tensor.name), dtype, std::move(shape), *bytes);
  TRY(read_as_into(tensor, dtype, out.bytes(), on_loss));
  return out;
}

Result<void> Model::read_as_into(std::string_view name, DType dtype, std::span<std::byte> out, OnLoss on_loss) const {
  const auto tensor = TRY(state_->get(name));
  const auto bytes = converted_bytes(*tensor, dtype);
  if (!bytes) return state_->error_in(*tensor, bytes.error());
  if (out.size() != *bytes) {
    const Error error{
        .code = Errc::kInvalidArgument,
        .message = fmt::format("needs {} bytes as {}, but the buffer has {}", *bytes, ballast::name(dtype), out.size())};
    return state_->error_in(*tensor, error);
  }
  return state_->read_as_into(*tensor, dtype, out, on_loss);
}

Result<Tensor> Model::read_as(std::string_view name, DType dtype, OnLoss on_loss) const {
  const auto tensor = TRY(state_->get(name));
  return state_->read_as(*tensor, dtype, {tensor->shape.begin(), tensor->shape.end()}, on_loss);
}

Result<Tensor> Model::read_2d(std::string_view name, OnLoss on_loss) const {
  const auto tensor = TRY(state_->get(name));
  auto shape = matrix_shape(tensor->shape);
  if (!shape) return state_->error_in(*tensor, shape.error());
  return state_->read_as(*tensor, DType::kF32, std::move(*shape), on_loss);
}

Result<std::vector<Tensor>> Model::read_all_2d(OnLoss on_loss) const {
  std::vector<Tensor> matrices;
  matrices.reserve(tensors().size());
  for (const TensorInfo& tensor : tensors()) {
    auto matrix = TRY(read_2d(tensor.name, on_loss));
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

}  // namespace ballast
