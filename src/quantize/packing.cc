#include "quantize/packing.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

namespace ballast {
namespace {

static_assert(std::endian::native == std::endian::little, "the first code is the lowest byte of a word");

constexpr std::size_t kCodes = 8;  // that a word takes at a time; they fill as many bytes as a code has bits
constexpr std::uint64_t kBytes = 0x00ff00ff00ff00ff;
constexpr std::uint64_t kPairs = 0x0000ffff0000ffff;
constexpr std::uint64_t kFours = 0x00000000ffffffff;

constexpr std::uint64_t ones(unsigned count) { return (std::uint64_t{1} << count) - 1; }

// A code per byte becomes a code per kBits bits: neighbours move together, then pairs of them, then fours.
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

template <unsigned kBits>
void pack(std::span<const std::uint8_t> codes, std::byte* out) {
  const std::size_t words = codes.size() / kCodes;
  for (std::size_t i = 0; i < words; ++i) {
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

}  // namespace

void pack_codes(unsigned bits, std::span<const std::uint8_t> codes, std::byte* out) {
  switch (bits) {
    case 2: return pack<2>(codes, out);
    case 3: return pack<3>(codes, out);
    case 4: return pack<4>(codes, out);
    case 5: return pack<5>(codes, out);
    case 6: return pack<6>(codes, out);
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
    case 8:
      if (!codes.empty()) std::memcpy(codes.data(), packed, codes.size());
      return;
    default: assert(false);
  }
}

}  // namespace ballast
