#include "table.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "display_width.h"

namespace ballast::cli {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kHidden = std::numeric_limits<std::size_t>::max();

std::size_t total_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width == kHidden ? 0 : width + kGap;
  return total - std::min(total, kGap);
}

// Takes from the columns that have the most to spare above `least` until the table fits.
void shrink(std::vector<std::size_t>& widths, const std::vector<std::size_t>& least, std::size_t room) {
  const auto spare = [&](std::size_t i) { return widths[i] == kHidden || widths[i] <= least[i] ? 0 : widths[i] - least[i]; };
  for (std::size_t total = total_width(widths); total > room; --total) {
    std::size_t widest = 0;
    for (std::size_t i = 1; i < widths.size(); ++i) widest = spare(i) > spare(widest) ? i : widest;
    if (spare(widest) == 0) return;
    --widths[widest];
  }
}

// One line, without spaces at its end.
class Line {
 public:
  explicit Line(std::size_t indent) : pending_(indent) {}

  void add(const std::string& text, Tone tone, std::size_t width, bool right) {
    const std::size_t padding = width - std::min(width, display_width(text));
    if (right) pending_ += padding;
    if (!text.empty()) {
      text_.append(std::exchange(pending_, 0), ' ');
      text_ += tinted(tone, text);
    }
    if (!right) pending_ += padding;
  }
  void skip(std::size_t columns) { pending_ += columns; }
  std::string text() const { return text_.substr(0, text_.find_last_not_of(' ') + 1); }

 private:
  std::string text_;
  std::size_t pending_;
};

// The end of a branch, which is of three-column steps, that is at most `columns` wide.
std::string branch_end(std::string_view branch, std::size_t columns) {
  while (display_width(branch) + 1 > columns) {
    branch.remove_prefix(1);
    while (!branch.empty() && (static_cast<unsigned char>(branch.front()) & 0xc0U) == 0x80) branch.remove_prefix(1);
  }
  return "…" + std::string(branch);
}

// The columns for a cell's text, at least half of them, however deep its branch.
std::size_t room_after_branch(Cell& cell, std::size_t width) {
  const std::size_t room = width - std::min(display_width(cell.text), width / 2);
  if (display_width(cell.branch) > room) cell.branch = branch_end(cell.branch, room);
  return width - display_width(cell.branch);
}

}  // namespace

Table::Table(std::vector<Column> columns, std::size_t indent) : columns_(std::move(columns)), indent_(indent) {}

void Table::add(std::vector<Cell> cells) { rows_.push_back({.cells = std::move(cells), .remark = {}}); }

void Table::add_remark(const Cell& label, std::string text) { rows_.push_back({.cells = {label}, .remark = std::move(text)}); }

std::size_t Table::natural_width(std::size_t column) const {
  std::size_t width = display_width(columns_[column].title);
  for (const Row& row : rows_) {
    if (column >= row.cells.size()) continue;
    const Cell& cell = row.cells[column];
    width = std::max(width, display_width(cell.branch) + display_width(cell.text));
  }
  return width;
}

std::vector<std::size_t> Table::fitting_widths() const {
  const std::size_t room = output_columns() - std::min(output_columns(), indent_);
  std::vector<std::size_t> widths;
  std::vector<std::size_t> least;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(natural_width(i));
    least.push_back(columns_[i].least == 0 ? widths.back() : std::min(widths.back(), columns_[i].least));
  }
  while (total_width(least) > room) {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].drop == 0 || widths[i] == kHidden) continue;
      if (!first || columns_[i].drop < columns_[*first].drop) first = i;
    }
    if (!first) break;
    widths[*first] = least[*first] = kHidden;
  }
  shrink(widths, least, room);
  // In a terminal too narrow even for that.
  constexpr std::size_t kNarrowest = 6;
  for (std::size_t i = 0; i < columns_.size(); ++i) least[i] = columns_[i].least == 0 ? kHidden : kNarrowest;
  shrink(widths, least, room);
  return widths;
}

std::vector<Table::Row> Table::fitted_rows(const std::vector<std::size_t>& widths) const {
  std::vector<Row> rows = rows_;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (widths[i] == kHidden || widths[i] >= natural_width(i)) continue;
    std::vector<Cell*> cells;
    std::vector<std::string> texts;
    std::vector<std::size_t> rooms;
    for (Row& row : rows) {
      if (i >= row.cells.size()) continue;
      cells.push_back(&row.cells[i]);
      rooms.push_back(room_after_branch(row.cells[i], widths[i]));
      texts.push_back(row.cells[i].text);
    }
    texts = shortened(texts, rooms);
    for (std::size_t j = 0; j < cells.size(); ++j) cells[j]->text = texts[j];
  }
  return rows;
}

void Table::print_row(const Row& row, const std::vector<std::size_t>& widths) const {
  Line line(indent_);
  for (std::size_t i = 0; i < row.cells.size(); ++i) {
    if (widths[i] == kHidden) continue;
    const Cell& cell = row.cells[i];
    const std::size_t branch = display_width(cell.branch);
    line.add(cell.branch, Tone::kDim, branch, false);
    line.add(cell.text, cell.tone, widths[i] - branch, columns_[i].right);
    line.skip(kGap);
  }
  line.add(row.remark, Tone::kDim, 0, false);
  cli::print("{}\n", line.text());
}

void Table::print() const {
  const std::vector<std::size_t> widths = fitting_widths();
  Row titles;
  for (const Column& column : columns_) titles.cells.emplace_back(column.title, Tone::kDim);
  print_row(titles, widths);
  for (const Row& row : fitted_rows(widths)) print_row(row, widths);
}

}  // namespace ballast::cli
