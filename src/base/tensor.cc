#include <ballast/tensor.h>

#include <utility>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/text.h"

namespace ballast {

std::uint64_t TensorInfo::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t dim : shape) product *= dim;  // cannot overflow: the parser has checked it
  return product;
}

std::optional<Error> TensorView::check_typed_access(bool dtype_fits, std::size_t size, std::size_t alignment) const {
  if (!dtype_fits) {
    return Error{
        .code = Errc::kInvalidArgument,
        .message = fmt::format("tensor {}: dtype {} cannot be viewed as the requested {}-byte type; use read<T>() to convert it",
                               quote(name), ballast::name(dtype), size)};
  }
  if (const auto address = reinterpret_cast<std::uintptr_t>(bytes.data()); !bytes.empty() && address % alignment != 0) {
    return Error{.code = Errc::kUnsupported,
                 .message = fmt::format("tensor {} starts {} bytes past a multiple of {}, so it cannot be viewed in place; "
                                        "use read() for an aligned copy",
                                        quote(name), address % alignment, alignment)};
  }
  return std::nullopt;
}

Tensor::Tensor(std::string name, DType dtype, std::vector<std::uint64_t> shape, std::size_t bytes)
    : name_(std::move(name)), shape_(std::move(shape)), data_(allocate_bytes(bytes)), size_(bytes), dtype_(dtype) {}

void Tensor::Free::operator()(std::byte* bytes) const { free_bytes(bytes); }

}  // namespace ballast
