#include "format/safetensors/layout.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include <fmt/ranges.h>

#include "base/checked.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "format/names.h"
#include "format/safetensors/header.h"

namespace ballast::safetensors {
namespace {

constexpr std::uint64_t kAlignment = 8;  // of the data; the header is padded with spaces
constexpr std::uint64_t kLargestHeader = 100'000'000;

// The order of the reference implementation: descending rank, then name.
std::vector<std::size_t> canonical_order(std::span<const TensorSpec> tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (tensors[a].dtype != tensors[b].dtype) return tensors[a].dtype > tensors[b].dtype;
    return tensors[a].name < tensors[b].name;
  });
  return order;
}

}  // namespace

std::string metadata_json(const Metadata& metadata) {
  std::string json = "{";
  for (const auto& [key, value] : metadata) {
    if (json.size() > 1) json += ',';
    append_json_string(key, json);
    json += ':';
    append_json_string(value, json);
  }
  return json += '}';
}

Result<std::uint64_t> data_bytes(const TensorSpec& tensor) {
  const auto elements = checked_elements(tensor.shape);
  const auto total_bits = elements ? checked_mul(*elements, bits(tensor.dtype)) : std::nullopt;
  if (!total_bits) {
    return fail(Errc::kInvalidArgument, "tensor {}: the size of shape {} overflows", quote(tensor.name), to_string(tensor.shape));
  }
  if (*total_bits % 8 != 0) {
    return fail(Errc::kInvalidArgument, "tensor {}: {} values of {} bits do not fill whole bytes", quote(tensor.name), *elements,
                bits(tensor.dtype));
  }
  return *total_bits / 8;
}

std::uint64_t entry_bound(const TensorSpec& tensor) {
  constexpr std::uint64_t kNumber = 21;        // the digits of 2^64 and a comma
  constexpr std::uint64_t kLongestEscape = 6;  // \u001f
  constexpr std::uint64_t kAllElse = 64;       // "":{"dtype":"F8_E4M3FNUZ","shape":[],"data_offsets":[]},
  return tensor.name.size() * kLongestEscape + (tensor.shape.size() + 2) * kNumber + kAllElse;
}

std::uint64_t header_bound(const Metadata& metadata) {
  constexpr std::uint64_t kAllElse = 64;
  return kLengthBytes + metadata_json(metadata).size() + kAllElse;
}

Result<Layout> make_layout(std::span<const TensorSpec> tensors, const Metadata& metadata, bool keep_empty_metadata) {
  if (auto checked = check_names(tensors, metadata); !checked) return std::unexpected(checked.error());
  Layout layout{.header = std::string(kLengthBytes, '\0'), .offsets = std::vector<std::uint64_t>(tensors.size())};
  std::string& json = layout.header;
  json += '{';
  if (!metadata.empty() || keep_empty_metadata) json += "\"__metadata__\":" + metadata_json(metadata);

  std::uint64_t end = 0;
  for (const std::size_t i : canonical_order(tensors)) {
    const TensorSpec& tensor = tensors[i];
    if (tensor.name == "__metadata__") {
      return fail(Errc::kInvalidArgument,
                  "a tensor cannot be named '__metadata__'; SafeTensors stores its metadata under this name");
    }
    const auto bytes = data_bytes(tensor);
    if (!bytes) return std::unexpected(bytes.error());
    const auto next = checked_add(end, *bytes);
    if (!next)
      return fail(Errc::kInvalidArgument, "tensor {}: {} bytes at offset {} overflow 64 bits", quote(tensor.name), *bytes, end);
    if (json.size() > kLengthBytes + 1) json += ',';
    append_json_string(tensor.name, json);
    fmt::format_to(std::back_inserter(json), R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name(tensor.dtype),
                   fmt::join(tensor.shape, ","), end, *next);
    layout.offsets[i] = end;
    end = *next;
  }
  json += '}';
  json.append((kAlignment - json.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = json.size() - kLengthBytes;
  if (length > kLargestHeader) {
    return fail(Errc::kWrite, "the header needs {} bytes, but readers accept at most {}; split the model into shards", length,
                kLargestHeader);
  }
  std::memcpy(json.data(), &length, sizeof(length));
  for (std::uint64_t& offset : layout.offsets) offset += json.size();
  const auto file_size = checked_add(end, json.size());
  if (!file_size || *file_size > std::uint64_t{INT64_MAX})
    return fail(Errc::kWrite, "{} bytes of data exceed the maximum file size", end);
  layout.file_size = *file_size;
  return layout;
}

}  // namespace ballast::safetensors

namespace ballast {

Result<SafetensorsLayout> safetensors_layout(std::span<const TensorSpec> tensors, const Metadata& metadata,
                                             bool keep_empty_metadata) {
  return safetensors::make_layout(tensors, metadata, keep_empty_metadata);
}

Result<void> check_bytes(const TensorView& tensor) {
  const auto bytes = safetensors::data_bytes(
      {.name = std::string(tensor.name), .dtype = tensor.dtype, .shape = {tensor.shape.begin(), tensor.shape.end()}});
  if (!bytes) return std::unexpected(bytes.error());
  if (*bytes == tensor.bytes.size()) return {};
  return fail(Errc::kInvalidArgument, "tensor {}: {} {} needs {} bytes, got {}", quote(tensor.name), name(tensor.dtype),
              to_string(tensor.shape), *bytes, tensor.bytes.size());
}

}  // namespace ballast
