#include "tree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <ballast/text.h>

#include "format.h"

namespace ballast::cli {
namespace {

constexpr std::size_t kDeepest = 24;        // limits recursion; further dots stay in the label
constexpr std::size_t kMostChildren = 200;  // rows shown below one node
constexpr std::size_t kMostRanges = 6;      // shown in one {…}

struct NaturalOrder {
  bool operator()(const std::string& a, const std::string& b) const { return natural_less(a, b); }
};

struct Node {
  std::map<std::string, Node, NaturalOrder> children;
  const Weight* weight = nullptr;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::string content;  // equal for nodes with the same content
};

void insert(Node& root, const Weight& weight) {
  Node* node = &root;
  std::string_view rest = weight.name;
  for (std::size_t depth = 0;; ++depth) {
    ++node->tensors;
    node->bytes += weight.bytes;
    const std::size_t dot = depth + 1 < kDeepest ? rest.find('.') : std::string_view::npos;
    node = &node->children[std::string(rest.substr(0, dot))];
    if (dot == std::string_view::npos) break;
    rest.remove_prefix(dot + 1);
  }
  ++node->tensors;
  node->bytes += weight.bytes;
  node->weight = &weight;
}

std::string digest(std::string_view text) { return fmt::format("{:x}", std::hash<std::string_view>{}(text)); }

void describe(Node& node) {
  if (node.weight != nullptr) node.content = type_text(*node.weight) + shape_text(node.weight->shape);
  for (auto& [label, child] : node.children) {
    describe(child);
    node.content += fmt::format("|{}:{}{}", label.size(), label, child.content);
  }
  constexpr std::size_t kLongest = 256;
  if (node.content.size() > kLongest) node.content = digest(node.content);
}

std::optional<std::uint64_t> as_number(std::string_view label) {
  constexpr std::size_t kMostDigits = 9;
  const bool canonical = label == "0" || !label.starts_with('0');
  if (label.empty() || label.size() > kMostDigits || !canonical) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : label) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// {0…27}, or {0…2,5,7…9} when numbers are missing.
std::string braces(std::span<const std::uint64_t> numbers) {
  std::string text = "{";
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (++ranges > kMostRanges) return text + ",…}";
    text += ranges > 1 ? "," : "";
    text += last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}…{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text + "}";
}

// Siblings that are shown as one.
struct Group {
  std::string label;
  const Node* node;  // the first of them
  std::uint64_t times;
};

std::vector<Group> group_children(const Node& parent) {
  struct Alike {
    std::size_t position;  // in `groups`
    std::vector<std::uint64_t> numbers;
  };
  std::vector<Group> groups;
  std::map<std::string_view, Alike> alike;  // by content
  for (const auto& [label, child] : parent.children) {
    const auto number = as_number(label);
    if (!number) {
      groups.push_back({.label = label_text(label), .node = &child, .times = 1});
      continue;
    }
    const auto [entry, is_new] = alike.try_emplace(child.content, Alike{.position = groups.size(), .numbers = {}});
    if (is_new) groups.push_back({.label = label_text(label), .node = &child, .times = 0});
    entry->second.numbers.push_back(*number);
    ++groups[entry->second.position].times;
  }
  for (const auto& [content, same] : alike) {
    if (same.numbers.size() > 1) groups[same.position].label = braces(same.numbers);
  }
  return groups;
}

class TreePrinter {
 public:
  std::vector<TreeRow> print(const Node& root) {
    print_children(root, "", 1, true);
    return std::move(rows_);
  }

 private:
  void print_children(const Node& parent, const std::string& indent, std::uint64_t times, bool is_root) {
    const std::vector<Group> groups = group_children(parent);
    const std::size_t shown = std::min(groups.size(), kMostChildren);
    for (std::size_t i = 0; i < shown; ++i) {
      const bool last = i + 1 == groups.size();
      print_group(groups[i], is_root ? "" : indent + (last ? "└─ " : "├─ "), is_root ? "" : indent + (last ? "   " : "│  "),
                  times);
    }
    if (shown == groups.size()) return;
    TreeRow more{.branch = is_root ? "" : indent + "└─ ", .label = fmt::format("… {} more", grouped(groups.size() - shown))};
    for (std::size_t i = shown; i < groups.size(); ++i) {
      more.tensors += groups[i].node->tensors * groups[i].times * times;
      more.bytes += groups[i].node->bytes * groups[i].times * times;
    }
    rows_.push_back(std::move(more));
  }

  // A chain of groups with one member each is one row: embed_tokens.weight.
  void print_group(Group group, const std::string& branch, const std::string& indent, std::uint64_t times) {
    times *= group.times;
    while (group.node->weight == nullptr) {
      const std::vector<Group> inner = group_children(*group.node);
      if (inner.size() != 1) break;
      group = {.label = group.label + "." + inner.front().label, .node = inner.front().node, .times = inner.front().times};
      times *= group.times;
    }
    const Weight* const weight = group.node->weight;
    rows_.push_back({.branch = branch,
                     .label = group.label,
                     .dtype = weight == nullptr ? "" : type_text(*weight),
                     .shape = weight == nullptr ? "" : shape_text(weight->shape),
                     .tensors = group.node->tensors * times,
                     .bytes = group.node->bytes * times});
    print_children(*group.node, indent, times, false);
  }

  std::vector<TreeRow> rows_;
};

}  // namespace

std::string type_text(const Weight& weight) {
  return weight.is_quantized() ? storage_name(weight.storage) : std::string(name(weight.dtype));
}

std::vector<TreeRow> make_tree(std::span<const Weight* const> weights) {
  Node root;
  for (const Weight* const weight : weights) insert(root, *weight);
  describe(root);
  return TreePrinter().print(root);
}

}  // namespace ballast::cli
