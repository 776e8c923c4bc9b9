// Parses its input as a whole file. If it is accepted, its tensors must be contiguous, every way to read it must agree, and the
// lenient parser must accept it too.

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <ballast/model.h>

#include "base/checked.h"
#include "check.h"
#include "format/safetensors/header.h"
#include "safetensors_mutator.h"

namespace ballast {
namespace {

using safetensors::Header;

bool same_place(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.begin == b.begin && a.end == b.end && std::ranges::equal(a.shape, b.shape);
}

void check_table(const Header& header, std::uint64_t file_size) {
  std::uint64_t running = 0;
  for (std::uint32_t i = 0; i < header.tensors.size(); ++i) {
    const TensorInfo& tensor = header.tensors[i];
    check(tensor.begin == running && tensor.end >= running);
    const auto elements = checked_elements(tensor.shape);
    check(elements && *elements == tensor.elements());
    check(checked_mul(*elements, bits(tensor.dtype)) == tensor.bytes() * 8);
    check(header.index.find(header.tensors, tensor.name) == i);
    running = tensor.end;
  }
  check(header.data_start + running == file_size);
}

void check_access(const Model& model, const TensorInfo& tensor) {
  const auto view = model.view(tensor.name);
  check(view && view->bytes.size() == tensor.bytes());
  const auto whole = model.read(tensor.name);
  check(whole && std::ranges::equal(whole->shape(), tensor.shape) && std::ranges::equal(whole->bytes(), view->bytes));
  if (tensor.shape.empty()) return;

  const std::array slices{Slice{.start = -1, .stop = std::nullopt, .step = -2}};
  const auto part = model.slice(tensor.name, slices);
  check(part || part.error().code == Errc::kUnsupported);
  check(part || bits(tensor.dtype) < 8 || tensor.shape[0] > INT64_MAX);
  check(!part || (part->bytes().size() <= tensor.bytes() && part->shape().size() == tensor.shape.size()));
}

// Reading in pieces of any size gives the same table, or leaves the error to parse_header().
void check_pieces(std::span<const std::byte> file, const Result<Header>& header, Strictness strictness) {
  const auto data_start = safetensors::read_data_start(file, file.size());
  if (!data_start) return;
  const std::size_t piece = 1 + static_cast<std::size_t>(file.back()) % 61;
  const auto read = safetensors::read_header(*open_memory(file), *data_start, {.strictness = strictness}, piece);
  if (!read) return check(!header && read.error().message == header.error().message);
  check(read->has_value() == header.has_value());
  if (!header) return;
  check((*read)->metadata == header->metadata && (*read)->has_metadata == header->has_metadata);
  check(std::ranges::equal((*read)->tensors, header->tensors, same_place));
}

void check_file(std::span<const std::byte> file, Strictness strictness) {
  const auto header = safetensors::parse_header(file, file.size(), {.strictness = strictness});
  check_pieces(file, header, strictness);
  const auto model = Model::from_bytes(file, "fuzz", {.strictness = strictness});
  check(header.has_value() == model.has_value());
  if (!header) {
    check(!header.error().message.empty());
    // The command that converts a file of another format names the file.
    const std::string& message = header.error().message;
    check(model.error().message.starts_with("fuzz: " + message.substr(0, message.find("; convert it"))));
    return;
  }
  check_table(*header, file.size());
  check(std::ranges::equal(header->tensors, model->tensors(), same_place));
  for (const TensorInfo& tensor : model->tensors()) check_access(*model, tensor);

  if (strictness == Strictness::kStrict) {
    const auto lenient = safetensors::parse_header(file, file.size(), {.strictness = Strictness::kReference});
    check(lenient && lenient->metadata == header->metadata);
    check(std::ranges::equal(header->tensors, lenient->tensors, same_place));
  }
}

}  // namespace
}  // namespace ballast

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  return ballast::mutate_safetensors(data, size, max_size, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  ballast::check_file(file, ballast::Strictness::kStrict);
  ballast::check_file(file, ballast::Strictness::kReference);
  return 0;
}
