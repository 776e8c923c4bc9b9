#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <ballast/dtype.h>
#include <ballast/error.h>

namespace ballast {

using Shape = std::span<const std::uint64_t>;

// The name, dtype, shape and position of a stored tensor. Valid while its model lives.
struct TensorInfo {
  std::string_view name;
  Shape shape;
  std::uint64_t begin = 0;  // bytes from the start of the file's data
  std::uint64_t end = 0;    // exclusive
  std::uint32_t file = 0;   // index into Model::files()
  DType dtype = DType::kBool;

  std::uint64_t bytes() const { return end - begin; }
  std::uint64_t elements() const;
};

// Whether values stored as `dtype` can be viewed as T. F16 and BF16 are viewed as std::uint16_t, F8 and BOOL as std::uint8_t: the
// raw bits.
template <class T>
constexpr bool holds(DType dtype) {
  using enum DType;
  if constexpr (std::is_same_v<T, float>) return dtype == kF32;
  if constexpr (std::is_same_v<T, double>) return dtype == kF64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return dtype == kC64;
  if constexpr (std::is_same_v<T, std::int8_t>) return dtype == kI8;
  if constexpr (std::is_same_v<T, std::int16_t>) return dtype == kI16;
  if constexpr (std::is_same_v<T, std::int32_t>) return dtype == kI32;
  if constexpr (std::is_same_v<T, std::int64_t>) return dtype == kI64;
  if constexpr (std::is_same_v<T, std::uint8_t>) return bits(dtype) == 8 && dtype != kI8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return bits(dtype) == 16 && dtype != kI16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return dtype == kU32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return dtype == kU64;
  return false;
}

// The dtype of values of type T: F32 for float, I64 for std::int64_t and so on.
template <class T>
constexpr DType dtype_for() {
  using enum DType;
  if constexpr (std::is_same_v<T, float>) {
    return kF32;
  } else if constexpr (std::is_same_v<T, double>) {
    return kF64;
  } else {
    static_assert(std::is_integral_v<T> && !std::is_same_v<T, bool>, "T must be float, double or an integer");
    constexpr bool kSigned = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return kSigned ? kI8 : kU8;
    if constexpr (sizeof(T) == 2) return kSigned ? kI16 : kU16;
    if constexpr (sizeof(T) == 4) return kSigned ? kI32 : kU32;
    if constexpr (sizeof(T) == 8) return kSigned ? kI64 : kU64;
  }
}

// The bytes of a tensor, in C order and little endian, owned by someone else. Valid while the owner lives.
struct TensorView {
  std::string_view name;
  DType dtype = DType::kBool;
  Shape shape;
  std::span<const std::byte> bytes;

  // Returns the values without a copy. Fails if `dtype` cannot be viewed as T, or if the bytes are not aligned for T; read()
  // returns an aligned copy.
  template <class T>
  Result<std::span<const T>> as() const {
    if (auto error = check_typed_access(holds<T>(dtype), sizeof(T), alignof(T))) return std::unexpected(std::move(*error));
    return std::span<const T>(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  }

 private:
  std::optional<Error> check_typed_access(bool dtype_fits, std::size_t size, std::size_t alignment) const;
};

// Owns a copy of a tensor or of a slice. The bytes are aligned to 64 bytes and initially uninitialized.
class Tensor {
 public:
  Tensor(std::string name, DType dtype, std::vector<std::uint64_t> shape, std::size_t bytes);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  Shape shape() const { return shape_; }
  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

  TensorView view() const& { return {.name = name_, .dtype = dtype_, .shape = shape_, .bytes = bytes()}; }
  TensorView view() && = delete;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::string name_;
  std::vector<std::uint64_t> shape_;
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_;
  DType dtype_;
};

}  // namespace ballast
