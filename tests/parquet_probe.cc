// Answers each line of standard input, a JSON object, with one line of JSON:
//   {"write": PATH, "compress": BOOL, "blocks": [BLOCK…]}   makes a file
//   {"read": PATH}                                           its blocks, or why it was refused
// A block has the fields of a row; its data are hexadecimal, and floats are given by their bits.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "format/parquet/parquet.h"
#include "tests/support/probe.h"

namespace {

using ballast::Errc;
using ballast::fail;
using ballast::Result;
using ballast::parquet::Block;
using ballast::test::from_hex;
using ballast::test::hex;
using ballast::test::probe_name;
using nlohmann::json;

json bits_of(std::span<const float> values) {
  json list = json::array();
  for (const float value : values) list.push_back(std::bit_cast<std::uint32_t>(value));
  return list;
}

std::vector<float> from_bits(const json& list) {
  std::vector<float> values;
  for (const json& bits : list) values.push_back(std::bit_cast<float>(bits.get<std::uint32_t>()));
  return values;
}

template <class T>
void get_optional(const json& object, const char* key, std::optional<T>& out) {
  if (object.contains(key) && !object[key].is_null()) out = object[key].get<T>();
}

template <class T>
json to_json(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

Block to_block(const json& row) {
  Block block{.layer_name = row.at("layer_name"),
              .dtype = row.at("dtype"),
              .quant_type = row.at("quant_type"),
              .shape = row.at("shape").get<std::vector<std::uint64_t>>(),
              .block = row.at("block"),
              .block_count = row.at("block_count"),
              .row_offset = row.at("row_offset"),
              .row_count = row.at("row_count"),
              .num_params = row.at("num_params"),
              .bit_width = row.at("bit_width"),
              .is_diffusion_model = row.at("is_diffusion_model")};
  get_optional(row, "quant_axis", block.quant_axis);
  get_optional(row, "group_size", block.group_size);
  get_optional(row, "modality", block.modality);
  get_optional(row, "time_aware_quant_json", block.time_aware_quant_json);
  get_optional(row, "spatial_quant_json", block.spatial_quant_json);
  get_optional(row, "activation_stats_json", block.activation_stats_json);
  return block;
}

json to_row(const Block& block, const ballast::parquet::Reader::Values& values) {
  return {{"layer_name", block.layer_name},
          {"dtype", block.dtype},
          {"quant_type", block.quant_type},
          {"shape", block.shape},
          {"block", block.block},
          {"block_count", block.block_count},
          {"row_offset", block.row_offset},
          {"row_count", block.row_count},
          {"data", hex(values.data)},
          {"num_params", block.num_params},
          {"scales", bits_of(values.scales)},
          {"zero_points", bits_of(values.zero_points)},
          {"bit_width", block.bit_width},
          {"quant_axis", to_json(block.quant_axis)},
          {"group_size", to_json(block.group_size)},
          {"is_diffusion_model", block.is_diffusion_model},
          {"modality", to_json(block.modality)},
          {"time_aware_quant_json", to_json(block.time_aware_quant_json)},
          {"spatial_quant_json", to_json(block.spatial_quant_json)},
          {"activation_stats_json", to_json(block.activation_stats_json)}};
}

Result<json> write(const ballast::parquet::Library& library, const json& request) {
  std::ofstream file(request.at("write").get<std::string>(), std::ios::binary);
  const auto append = [&](std::span<const std::byte> bytes) -> Result<void> {
    if (file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) return {};
    return fail(Errc::kWrite, "cannot write");
  };
  auto writer = library.create_writer(append, {.compress_data = request.value("compress", false)});
  if (!writer) return std::unexpected(writer.error());
  for (const json& row : request.at("blocks")) {
    const auto data = from_hex(row.at("data").get<std::string>());
    const auto appended = (*writer)->append(to_block(row), data, from_bits(row.at("scales")), from_bits(row.at("zero_points")));
    if (!appended) return std::unexpected(appended.error());
  }
  if (const auto finished = (*writer)->finish(); !finished) return std::unexpected(finished.error());
  return json::object();
}

Result<json> read(const ballast::parquet::Library& library, const json& request) {
  const auto source = ballast::open_file(request.at("read"), ballast::Access::kAuto);
  if (!source) return std::unexpected(source.error());
  const auto reader = library.open_reader(**source);
  if (!reader) return std::unexpected(reader.error());
  json rows = json::array();
  for (std::size_t i = 0; i < (*reader)->blocks().size(); ++i) {
    const auto values = (*reader)->read(i);
    if (!values) return std::unexpected(values.error());
    auto time_aware = (*reader)->read_time_aware(i);
    if (!time_aware) return std::unexpected(time_aware.error());
    Block block = (*reader)->blocks()[i];
    block.time_aware_quant_json = std::move(*time_aware);
    rows.push_back(to_row(block, *values));
  }
  return json{{"blocks", std::move(rows)}};
}

Result<json> answer(const json& request) {
  const auto library = ballast::parquet::load_library();
  if (!library) return std::unexpected(library.error());
  return request.contains("write") ? write(**library, request) : read(**library, request);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    auto result = answer(json::parse(line));
    json reply =
        result ? std::move(*result) : json{{"code", probe_name(result.error().code)}, {"message", result.error().message}};
    reply["ok"] = result.has_value();
    std::cout << reply.dump() << '\n' << std::flush;
  }
}
