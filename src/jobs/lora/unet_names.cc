#include "jobs/lora/unet_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace ballast {
namespace {

using UnetName = std::pair<std::string_view, std::string_view>;  // of diffusers, and the original
constexpr std::array<UnetName, 7> kOutside{{{"conv_in", "input_blocks.0.0"},
                                            {"time_embedding.linear_1", "time_embed.0"},
                                            {"time_embedding.linear_2", "time_embed.2"},
                                            {"add_embedding.linear_1", "label_emb.0.0"},
                                            {"add_embedding.linear_2", "label_emb.0.2"},
                                            {"conv_norm_out", "out.0"},
                                            {"conv_out", "out.2"}}};
constexpr std::array<UnetName, 6> kInResnet{{{"norm1", "in_layers.0"},
                                             {"conv1", "in_layers.2"},
                                             {"time_emb_proj", "emb_layers.1"},
                                             {"norm2", "out_layers.0"},
                                             {"conv2", "out_layers.3"},
                                             {"conv_shortcut", "skip_connection"}}};

std::string_view original_of(std::string_view name, std::span<const UnetName> names) {
  const auto found = std::ranges::find(names, name, &UnetName::first);
  return found == names.end() ? std::string_view() : found->second;
}

std::string_view take_part(std::string_view& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view part = name.substr(0, dot);
  name.remove_prefix(std::min(dot + 1, name.size()));
  return part;
}

std::optional<unsigned> take_number(std::string_view& name) {
  const std::string_view part = take_part(name);
  unsigned number = 0;
  const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), number);
  if (error != std::errc{} || stop != part.data() + part.size() || number > 99) return std::nullopt;
  return number;
}

}  // namespace

std::string original_unet_name(std::string_view module, const std::function<bool(std::string_view head)>& has) {
  constexpr unsigned kLayers = 3;  // of a block, with what resizes
  if (const std::string_view outside = original_of(module, kOutside); !outside.empty()) return std::string(outside);
  std::string_view rest = module;
  const std::string_view side = take_part(rest);
  const bool is_down = side == "down_blocks";
  if (!is_down && side != "up_blocks" && side != "mid_block") return {};
  const auto block = side == "mid_block" ? std::optional(0U) : take_number(rest);
  const std::string_view kind = take_part(rest);
  const auto layer = take_number(rest);
  if (!block || !layer || *layer >= (is_down ? kLayers - 1 : kLayers)) return {};
  const auto named = [&](unsigned number, unsigned part, std::string_view end) {
    if (end.empty()) return std::string();
    return fmt::format("{}.{}.{}.{}", is_down ? "input_blocks" : "output_blocks", number, part, end);
  };
  const bool is_resnet = kind == "resnets";
  const std::string_view end = is_resnet ? original_of(rest, kInResnet) : rest;
  if (side == "mid_block") {
    if (end.empty() || (!is_resnet && kind != "attentions")) return {};
    return fmt::format("middle_block.{}.{}", is_resnet ? 2 * *layer : 1, end);
  }
  const unsigned first = *block * kLayers + (is_down ? 1 : 0);
  if (is_resnet) return named(first + *layer, 0, end);
  if (kind == "attentions") return named(first + *layer, 1, end);
  if (kind == "downsamplers" && is_down) return named(first + kLayers - 1, 0, rest == "conv" ? "op" : "");
  if (kind != "upsamplers") return {};
  return named(first + kLayers - 1, has(fmt::format("up_blocks.{}.attentions", *block)) ? 2 : 1, rest == "conv" ? "conv" : "");
}

}  // namespace ballast
