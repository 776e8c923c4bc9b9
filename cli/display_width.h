#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::cli {

// The terminal columns that UTF-8 text takes, whatever the locale: 2 for wide East Asian characters and emoji, 0 for combining
// marks, else 1. A byte that is not UTF-8 counts 1.
std::size_t display_width(std::string_view text);

// As much of the start of `text` as fits into `columns`.
std::string beginning(std::string_view text, std::size_t columns);

// Text of at most `columns` columns, which must be at least 2: an … replaces the middle of longer text.
std::string shortened(const std::string& text, std::size_t columns);

// The same for the names of one table, each with its own limit. Start and end share the room so that as many names as possible
// stay distinct and keep their last number, which is often that of a layer. Names that still look alike show where they differ.
std::vector<std::string> shortened(std::span<const std::string> names, std::span<const std::size_t> columns);

}  // namespace ballast::cli
