#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>

namespace ballast {

// Token ids in windows of equal length, which a language model reads one by one.
struct TokenWindows {
  std::vector<std::uint32_t> ids;  // window after window
  std::uint64_t length = 0;        // of a window, at least 2
  std::uint64_t unused = 0;        // ids at the end of a text that fill no window
  std::string path;                // for messages

  std::uint64_t count() const { return length == 0 ? 0 : ids.size() / length; }
};

inline constexpr std::uint64_t kDefaultWindow = 512;

// Cuts the ids of a text into windows. A text that is shorter than a window is a window of its own.
Result<TokenWindows> cut_windows(std::vector<std::uint32_t> ids, std::uint64_t length, const std::string& path = "<tokens>");

// Makes windows of ids in an array of one or two dimensions: of two, each row is a window, and `length` is not used.
Result<TokenWindows> make_windows(std::vector<std::uint32_t> ids, std::span<const std::uint64_t> shape, std::uint64_t length,
                                  const std::string& path = "<tokens>");

// Reads token ids from an .npy file, from a SafeTensors file with one tensor, or from a text file with numbers, and makes
// windows of them as make_windows() does.
Result<TokenWindows> read_tokens(const std::string& path, std::uint64_t length = kDefaultWindow);

// Uses at most `count` windows, evenly spread over all.
TokenWindows spread_windows(TokenWindows tokens, std::uint64_t count);

}  // namespace ballast
