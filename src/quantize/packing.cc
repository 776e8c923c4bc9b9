// Compiled once for each instruction set.

#include "quantize/packing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

#define HWY_BROKEN_EMU128 0  // see convert/kernels.cc  NOLINT(cppcoreguidelines-macro-usage)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize/packing.cc"  // NOLINT(cppcoreguidelines-macro-usage)
#include <hwy/foreach_target.h>                   // first
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(std::endian::native == std::endian::little, "the first code is the lowest byte of a word");

constexpr std::size_t kCodes = 8;  // per word; they fill as many bytes as a code has bits
constexpr std::uint64_t kBytes = 0x00ff00ff00ff00ff;
constexpr std::uint64_t kPairs = 0x0000ffff0000ffff;
constexpr std::uint64_t kFours = 0x00000000ffffffff;

constexpr std::uint64_t ones(unsigned count) { return (std::uint64_t{1} << count) - 1; }

// A code per byte becomes a code per kBits bits: neighbors move together, then pairs of them, then fours.
template <unsigned kBits>
std::uint64_t compress(std::uint64_t word) {
  word = (word & kBytes) | (word >> 8 & kBytes) << kBits;
  word = (word & kPairs) | (word >> 16 & kPairs) << 2 * kBits;
  return (word & kFours) | (word >> 32) << 4 * kBits;
}

template <unsigned kBits>
std::uint64_t expand(std::uint64_t word) {
  constexpr std::uint64_t kFour = ones(4 * kBits);
  constexpr std::uint64_t kPair = ones(2 * kBits) * 0x0000000100000001;
  constexpr std::uint64_t kOne = ones(kBits) * 0x0001000100010001;
  word = (word & kFour) | (word >> 4 * kBits & kFour) << 32;
  word = (word & kPair) | (word >> 2 * kBits & kPair) << 16;
  return (word & kOne) | (word >> kBits & kOne) << 8;
}

using Words = hn::CappedTag<std::uint64_t, 8>;
using WordVector = hn::VFromD<Words>;

template <unsigned kBits>
HWY_INLINE WordVector compress_words(Words d, WordVector words) {
  const auto set = [d](std::uint64_t mask) HWY_ATTR { return hn::Set(d, mask); };
  words = hn::Or(hn::And(words, set(kBytes)), hn::ShiftLeft<kBits>(hn::And(hn::ShiftRight<8>(words), set(kBytes))));
  words = hn::Or(hn::And(words, set(kPairs)), hn::ShiftLeft<2 * kBits>(hn::And(hn::ShiftRight<16>(words), set(kPairs))));
  return hn::Or(hn::And(words, set(kFours)), hn::ShiftLeft<4 * kBits>(hn::ShiftRight<32>(words)));
}

// The lower half of every word, in order.
template <unsigned kBits>
HWY_INLINE void store_halves(WordVector low, WordVector high, std::byte* out) {
  const hn::Repartition<std::uint32_t, Words> d32;
  const auto halves = hn::ConcatEven(d32, hn::BitCast(d32, high), hn::BitCast(d32, low));
  const hn::Repartition<std::uint8_t, Words> d8;
  hn::StoreU(hn::BitCast(d8, halves), d8, reinterpret_cast<std::uint8_t*>(out));
}

// As many words as fill vectors; returns their number.
template <unsigned kBits>
std::size_t pack_words(const std::uint8_t* codes, std::size_t words, std::byte* out) {
  const Words d;
  const hn::Repartition<std::uint8_t, Words> d8;
  constexpr std::size_t kAtOnce = 2 * HWY_MIN(HWY_LANES(std::uint64_t), 8);
  const auto load = [&](std::size_t word)
                        HWY_ATTR { return compress_words<kBits>(d, hn::BitCast(d, hn::LoadU(d8, codes + word * kCodes))); };
  std::size_t done = 0;
  for (; done + kAtOnce <= words; done += kAtOnce) {
    const auto low = load(done);
    const auto high = load(done + kAtOnce / 2);
    if constexpr (kBits == 4) {
      store_halves<kBits>(low, high, out + done * kBits);
    } else {
      alignas(64) std::array<std::uint64_t, kAtOnce> compressed;  // NOLINT(cppcoreguidelines-pro-type-member-init)
      hn::Store(low, d, compressed.data());
      hn::Store(high, d, compressed.data() + kAtOnce / 2);
      for (std::size_t i = 0; i < kAtOnce; ++i) std::memcpy(out + (done + i) * kBits, &compressed[i], kBits);
    }
  }
  return done;
}

template <unsigned kBits>
void pack(std::span<const std::uint8_t> codes, std::byte* out) {
  const std::size_t words = codes.size() / kCodes;
  for (std::size_t i = pack_words<kBits>(codes.data(), words, out); i < words; ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes.data() + i * kCodes, kCodes);
    word = compress<kBits>(word);
    std::memcpy(out + i * kBits, &word, kBits);
  }
  if (const std::size_t rest = codes.size() % kCodes; rest != 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes.data() + words * kCodes, rest);
    word = compress<kBits>(word);
    std::memcpy(out + words * kBits, &word, packed_size(kBits, rest));
  }
}

template <unsigned kBits>
void unpack(const std::byte* packed, std::span<std::uint8_t> codes) {
  const std::size_t size = packed_size(kBits, codes.size());
  std::uint64_t word = 0;
  std::size_t done = 0;
  // A load of fewer than eight bytes is slow where these are not a power of two.
  for (; done / kCodes * kBits + sizeof(word) <= size; done += kCodes) {
    std::memcpy(&word, packed + done / kCodes * kBits, sizeof(word));
    word = expand<kBits>(word);
    std::memcpy(codes.data() + done, &word, kCodes);
  }
  for (; done < codes.size(); done += kCodes) {
    const std::size_t count = std::min(kCodes, codes.size() - done);
    word = 0;
    std::memcpy(&word, packed + done / kCodes * kBits, packed_size(kBits, count));
    word = expand<kBits>(word);
    std::memcpy(codes.data() + done, &word, count);
  }
}

void pack_codes(unsigned bits, std::span<const std::uint8_t> codes, std::byte* out) {
  switch (bits) {
    case 2: return pack<2>(codes, out);
    case 3: return pack<3>(codes, out);
    case 4: return pack<4>(codes, out);
    case 5: return pack<5>(codes, out);
    case 6: return pack<6>(codes, out);
    case 7: return pack<7>(codes, out);
    case 8:
      if (!codes.empty()) std::memcpy(out, codes.data(), codes.size());
      return;
    default: assert(false);
  }
}

void unpack_codes(unsigned bits, const std::byte* packed, std::span<std::uint8_t> codes) {
  switch (bits) {
    case 2: return unpack<2>(packed, codes);
    case 3: return unpack<3>(packed, codes);
    case 4: return unpack<4>(packed, codes);
    case 5: return unpack<5>(packed, codes);
    case 6: return unpack<6>(packed, codes);
    case 7: return unpack<7>(packed, codes);
    case 8:
      if (!codes.empty()) std::memcpy(codes.data(), packed, codes.size());
      return;
    default: assert(false);
  }
}

}  // namespace
}  // namespace ballast::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {
HWY_EXPORT(pack_codes);
HWY_EXPORT(unpack_codes);
void pack_codes(unsigned bits, std::span<const std::uint8_t> codes, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(pack_codes)(bits, codes, out);
}
void unpack_codes(unsigned bits, const std::byte* packed, std::span<std::uint8_t> codes) {
  HWY_DYNAMIC_DISPATCH(unpack_codes)(bits, packed, codes);
}
}  // namespace ballast
#endif
