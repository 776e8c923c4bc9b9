// Compiled once per instruction set: Highway includes this file repeatedly.

#include "convert/kernels.h"

#include <array>
#include <cstring>
#include <string>
#include <type_traits>

#include "convert/float_format.h"

// The fallback target is plain C++ on 128 bits. Highway 1.0 disables it with g++ before 12.3 because of a bug in 16-bit high
// multiplication, which is not used here.
#define HWY_BROKEN_EMU128 0  // NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert/kernels.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "convert/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

constexpr std::size_t kLine = 64;

// F4 is packed and unpacked in blocks; in between, its codes are bytes.
constexpr std::size_t code_bits(DType dtype) { return dtype == DType::kF4 ? 8 : bits(dtype); }

template <DType kFrom>
struct ToF32 {
  static constexpr std::size_t kInBits = bits(kFrom);
  static constexpr std::size_t kOutBits = 32;

  template <Stores kStores>
  static HWY_INLINE void block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    if constexpr (has_quick_decode(kFrom)) {
      if (!f16_block_has_nan(in)) return quick_block<kStores>(in, out);
    }
    exact_block<kStores>(in, out);
  }

  template <Stores kStores>
  static HWY_INLINE void quick_block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    const Lanes32 d;
    for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      store<kStores>(d, quick_decode_f16(d, in + i * 2), out + i * 4);
    }
  }

  template <Stores kStores>
  static void exact_block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    std::array<std::uint8_t, kBlock> nibbles{};  // NOLINT(misc-const-correctness): F4 fills it
    if constexpr (kFrom == DType::kF4) {
      unpack_nibbles(in, nibbles.data());
      in = nibbles.data();
    }
    const Lanes32 d;
    for (std::size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto codes = load_codes<code_bits(kFrom)>(d, in + i * code_bits(kFrom) / 8);
      store<kStores>(d, decode_f32<kFrom>(d, codes), out + i * 4);
    }
  }
};

template <DType kTo>
struct FromF32 {
  static constexpr std::size_t kInBits = 32;
  static constexpr std::size_t kOutBits = bits(kTo);

  template <Stores kStores>
  static HWY_INLINE void block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    if constexpr (has_quick_encode(kTo)) {
      if (!f32_block_has_nan(in)) return quick_block<kStores>(in, out);
    }
    exact_block<kStores>(in, out);
  }

  template <Stores kStores>
  static HWY_INLINE void quick_block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    const Lanes32 d;
    for (std::size_t i = 0; i < kBlock; i += 2 * hn::Lanes(d)) {
      const auto low = load(d, in + i * 4);
      const auto high = load(d, in + (i + hn::Lanes(d)) * 4);
      store<kStores>(d, quick_encode<kTo>(d, low, high), out + i * 2);
    }
  }

  static HWY_INLINE Vector32 code(const std::uint8_t* in, std::size_t index) {
    const Lanes32 d;
    return encode_f32<kTo>(d, load(d, in + index * 4));
  }

  template <Stores kStores>
  static void exact_block(const std::uint8_t* HWY_RESTRICT in, std::uint8_t* HWY_RESTRICT out) {
    const Lanes32 d;
    constexpr std::size_t kVectors = 32 / code_bits(kTo);
    const std::size_t lanes = hn::Lanes(d);
    std::array<std::uint8_t, kBlock> nibbles{};
    constexpr bool kPacked = kTo == DType::kF4;
    constexpr Stores kCodeStores = kPacked ? Stores::kOrdinary : kStores;
    std::uint8_t* codes = kPacked ? nibbles.data() : out;
    for (std::size_t i = 0; i < kBlock; i += kVectors * lanes) {
      auto packed = pack16(d, code(in, i), code(in, i + lanes));
      if constexpr (kVectors == 4) packed = pack8(d, packed, pack16(d, code(in, i + 2 * lanes), code(in, i + 3 * lanes)));
      store<kCodeStores>(d, packed, codes + i * code_bits(kTo) / 8);
    }
    if constexpr (kPacked) pack_nibbles(codes, out);
  }
};

// Converts fewer values than a block, padded to a whole block.
template <class Kernel>
void partial_block(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  alignas(kLine) std::array<std::uint8_t, kBlock * Kernel::kInBits / 8> block_in{};
  alignas(kLine) std::array<std::uint8_t, kBlock * Kernel::kOutBits / 8> block_out{};
  std::memcpy(block_in.data(), in, count * Kernel::kInBits / 8);
  Kernel::template block<Stores::kOrdinary>(block_in.data(), block_out.data());
  std::memcpy(out, block_out.data(), count * Kernel::kOutBits / 8);
}

template <class Kernel>
void convert_blocks(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  constexpr std::size_t kInStep = kBlock * Kernel::kInBits / 8;
  constexpr std::size_t kOutStep = kBlock * Kernel::kOutBits / 8;
  for (; count >= kBlock; count -= kBlock, in += kInStep, out += kOutStep) Kernel::template block<Stores::kOrdinary>(in, out);
  if (count > 0) partial_block<Kernel>(in, count, out);
}

// `out` is aligned to a cache line. If there is more to read than to write, alternates between two positions, so that the
// hardware prefetch for one of them does not saturate the bus.
template <class Kernel>
void stream_blocks(const std::uint8_t* in, std::size_t count, std::uint8_t* out) {
  constexpr std::size_t kApart = 65536;         // values
  constexpr std::size_t kTurn = 4 * kBlock;     // values
  constexpr std::size_t kPrefetchAhead = 2048;  // bytes
  const auto stream = [&](std::size_t begin, std::size_t end) HWY_ATTR {
    for (std::size_t value = begin; value < end; value += kBlock) {
      const std::uint8_t* block = in + value * Kernel::kInBits / 8;
      for (std::size_t i = 0; i < kBlock * Kernel::kInBits / 8; i += kLine) hwy::Prefetch(block + kPrefetchAhead + i);
      Kernel::template block<Stores::kStreaming>(block, out + value * Kernel::kOutBits / 8);
    }
  };
  std::size_t done = 0;
  if constexpr (Kernel::kInBits > Kernel::kOutBits) {
    for (; count - done >= 2 * kApart; done += 2 * kApart) {
      for (std::size_t i = done; i < done + kApart; i += kTurn) {
        stream(i, i + kTurn);
        stream(i + kApart, i + kApart + kTurn);
      }
    }
  }
  const std::size_t rest = (count - done) % kBlock;
  stream(done, count - rest);
  done = count - rest;
  if (rest > 0) partial_block<Kernel>(in + done * Kernel::kInBits / 8, rest, out + done * Kernel::kOutBits / 8);
}

// Streams whole cache lines and stores the values before the first line normally. If no value starts at a cache line, all are
// stored normally.
template <class Kernel>
void convert_all(const std::uint8_t* in, std::size_t count, std::uint8_t* out, Stores stores) {
  const std::size_t gap = -reinterpret_cast<std::uintptr_t>(out) % kLine;
  const std::size_t head = gap * 8 / Kernel::kOutBits;
  const bool reaches_line = gap * 8 % Kernel::kOutBits == 0 && head * Kernel::kInBits % 8 == 0 && head < count;
  if (stores == Stores::kOrdinary || !reaches_line) return convert_blocks<Kernel>(in, count, out);
  convert_blocks<Kernel>(in, head, out);
  stream_blocks<Kernel>(in + head * Kernel::kInBits / 8, count - head, out + gap);
}

template <template <DType> class Kernel>
void convert_by_dtype(DType dtype, const std::byte* in, std::size_t count, std::byte* out, Stores stores) {
  const auto run = [&]<DType kDType>(std::integral_constant<DType, kDType>) {
    convert_all<Kernel<kDType>>(reinterpret_cast<const std::uint8_t*>(in), count, reinterpret_cast<std::uint8_t*>(out), stores);
  };
  using enum DType;
  switch (dtype) {
    case kF4: return run(std::integral_constant<DType, kF4>());
    case kF8E5M2: return run(std::integral_constant<DType, kF8E5M2>());
    case kF8E4M3: return run(std::integral_constant<DType, kF8E4M3>());
    case kF8E8M0: return run(std::integral_constant<DType, kF8E8M0>());
    case kF8E4M3Fnuz: return run(std::integral_constant<DType, kF8E4M3Fnuz>());
    case kF8E5M2Fnuz: return run(std::integral_constant<DType, kF8E5M2Fnuz>());
    case kF16: return run(std::integral_constant<DType, kF16>());
    case kBF16: return run(std::integral_constant<DType, kBF16>());
    default: HWY_ABORT("no kernel converts between %s and F32", std::string(name(dtype)).c_str());
  }
}

void to_f32(DType from, const std::byte* in, std::size_t count, std::byte* out, Stores stores) {
  convert_by_dtype<ToF32>(from, in, count, out, stores);
}

void from_f32(DType to, const std::byte* in, std::size_t count, std::byte* out, Stores stores) {
  convert_by_dtype<FromF32>(to, in, count, out, stores);
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(to_f32);
HWY_EXPORT(from_f32);

void to_f32(DType from, const std::byte* in, std::size_t count, std::byte* out, Stores stores) {
  HWY_DYNAMIC_DISPATCH(to_f32)(from, in, count, out, stores);
}

void from_f32(DType to, const std::byte* in, std::size_t count, std::byte* out, Stores stores) {
  HWY_DYNAMIC_DISPATCH(from_f32)(to, in, count, out, stores);
}

void finish_streaming() { hwy::FlushStream(); }

}  // namespace ballast
#endif
