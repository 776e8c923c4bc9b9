// Takes its input for a GGUF file. Every prefix asks for more, or gives the same as the whole; what is accepted lies inside the
// file, and an importance matrix in it has statistics that make sense.

#include <algorithm>
#include <cstdint>

#include "calibrate/imatrix.h"
#include "calibrate/statistics.h"
#include "check.h"
#include "format/gguf/header.h"

namespace ballast {
namespace {

void check_value(const gguf::Value& value) {
  const auto strings = value.strings();
  check(strings.empty() || strings.size() == value.count);
  check(!value.is_array || (!value.as_unsigned() && !value.as_float() && !value.as_string()));
}

void check_table(const gguf::Table& table, std::uint64_t file_size) {
  std::uint64_t end = 0;
  for (const gguf::Tensor& tensor : table.tensors) {
    check(tensor.begin >= end && tensor.begin % table.alignment == 0 && tensor.end >= tensor.begin);
    check(tensor.shape.empty() || tensor.shape.back() % tensor.type->elements == 0);
    end = tensor.end;
  }
  check(table.tensors.empty() || table.data_start + end <= file_size);
  for (const auto& [key, value] : table.metadata) check_value(value);
}

void check_imatrix(const Source& source) {
  auto imatrix = read_imatrix(source);
  if (!imatrix) return check(!imatrix.error().message.empty());
  const auto statistics = Statistics::from_imatrix(std::move(*imatrix), "fuzz");
  if (!statistics) return check(!statistics.error().message.empty());
  for (const std::string& weight : statistics->weights()) {
    const auto layer = statistics->read(weight);
    check(layer ? std::ranges::all_of(layer->importance, [](float value) { return value > 0; }) : !layer.error().message.empty());
  }
}

void check_file(std::span<const std::byte> file) {
  const auto whole = gguf::parse_table(file, file.size());
  check(!whole || *whole);
  const std::size_t piece = file.empty() ? 0 : static_cast<std::size_t>(file.back()) * file.size() / 256;
  const auto part = gguf::parse_table(file.first(piece), file.size());
  if (!part) check(!whole && whole.error().message == part.error().message);
  if (whole) check_table(**whole, file.size());
  check_imatrix(*open_memory(file));
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::check_file(std::as_bytes(std::span(data, size)));
  return 0;
}
