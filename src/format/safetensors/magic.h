#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ballast::safetensors {

// Recognizes other file formats that are often found under a .safetensors name, by the first bytes of a file and, for formats
// without a mark, by its name. Returns the end of an error message, "; this looks like …" with what to do, or nothing. `path` is
// the file for the command that converts it.
std::string guess_format(std::span<const std::byte> front, std::string_view path = {});

// What to do with a weights file of another library, by the suffix of its name: "; this looks like …". Empty for other files.
std::string guess_by_name(std::string_view path);

// The size of the file that a Git LFS pointer stands for; empty for other content.
std::optional<std::uint64_t> lfs_size(std::span<const std::byte> front);

}  // namespace ballast::safetensors
