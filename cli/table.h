#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "terminal.h"

namespace ballast::cli {

struct Column {
  std::string title;
  bool right = false;     // aligned to the right, for numbers
  std::size_t least = 0;  // texts may be shortened to this width; 0: never
  unsigned drop = 0;      // a table that is too wide leaves out the column with 1 first, then 2 …; 0: never
};

struct Cell {
  template <std::convertible_to<std::string_view> Text>
  Cell(const Text& content, Tone color = Tone::kPlain) : text(std::string_view(content)), tone(color) {}

  std::string text;
  Tone tone;
  std::string branch;  // the lines of a tree before the text
};

// A table on standard output that fits output_columns(): it leaves out columns and shortens texts, names in the middle.
class Table {
 public:
  explicit Table(std::vector<Column> columns, std::size_t indent = 0);

  void add(std::vector<Cell> cells);                     // one for each column
  void add_remark(const Cell& label, std::string text);  // text instead of all cells but the first

  void print() const;

 private:
  struct Row {
    std::vector<Cell> cells;  // only the first if there is a remark
    std::string remark;
  };
  std::size_t natural_width(std::size_t column) const;
  std::vector<std::size_t> fitting_widths() const;
  std::vector<Row> fitted_rows(const std::vector<std::size_t>& widths) const;
  void print_row(const Row& row, const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
  std::size_t indent_;
};

}  // namespace ballast::cli
