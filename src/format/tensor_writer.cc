#include "format/tensor_writer.h"

#include "base/fail.h"

namespace ballast {

Result<void> check_piece(std::span<const std::uint64_t> sizes, std::size_t tensor, std::uint64_t offset, std::uint64_t bytes) {
  if (tensor >= sizes.size()) {
    return fail(Errc::kInvalidArgument, "tensor index {} is out of range: {} tensors were declared", tensor, sizes.size());
  }
  if (offset > sizes[tensor] || bytes > sizes[tensor] - offset) {
    return fail(Errc::kInvalidArgument, "tensor index {}: cannot write {} bytes at offset {}, the tensor has {} bytes", tensor,
                bytes, offset, sizes[tensor]);
  }
  return {};
}

}  // namespace ballast
