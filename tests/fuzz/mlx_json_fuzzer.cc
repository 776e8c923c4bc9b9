// Parses its input as MLX JSON in pieces of two sizes, which must agree. Then reads every value and writes it again; reading that
// must give the same bytes.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/model.h>

#include "base/checked.h"
#include "check.h"
#include "format/mlx_json/document.h"
#include "format/mlx_json/values.h"
#include "format/mlx_json/writer.h"
#include "source/source.h"

namespace ballast {
namespace {

void check_table(const mlx_json::Document& document, std::uint64_t text_size) {
  std::uint64_t running = 0;
  std::uint64_t checkpoints = 0;
  const TensorTable& table = document.table;
  check(table.tensors.size() == document.data.size());
  for (std::uint32_t i = 0; i < table.tensors.size(); ++i) {
    const TensorInfo& tensor = table.tensors[i];
    const mlx_json::DataText& data = document.data[i];
    check(tensor.begin == running && tensor.end >= running);
    check(data.begin == tensor.begin && data.end == tensor.end && data.dtype == tensor.dtype && data.checkpoint == checkpoints);
    check(checked_mul(tensor.elements(), bits(tensor.dtype) / 8) == tensor.bytes());
    check(tensor.elements() <= text_size && data.text_end <= text_size);
    check(table.index.find(table.tensors, tensor.name) == i);
    checkpoints += (tensor.elements() + mlx_json::kStride - 1) / mlx_json::kStride;
    running = tensor.end;
  }
  check(document.checkpoints.size() == checkpoints);
  check(std::ranges::is_sorted(document.checkpoints));
}

// Every tensor's bytes, or the first error.
Result<std::vector<std::string>> read_all(const Model& model) {
  std::vector<std::string> all;
  for (const TensorInfo& tensor : model.tensors()) {
    const auto copy = model.read(tensor.name);
    if (!copy) return std::unexpected(copy.error());
    all.emplace_back(reinterpret_cast<const char*>(copy->bytes().data()), copy->bytes().size());
    if (tensor.bytes() < 2) continue;
    std::string part(tensor.bytes() - 2, '\0');
    check(model.read_into(tensor.name, 1, std::as_writable_bytes(std::span(part))).has_value());
    check(part == all.back().substr(1, part.size()));
  }
  return all;
}

std::string write(const Model& model, std::span<const std::string> data) {
  std::string text;
  mlx_json::append_document_begin(model.metadata(), text);
  for (std::size_t i = 0; i < data.size(); ++i) {
    const TensorInfo& tensor = model.tensors()[i];
    mlx_json::append_tensor_begin(tensor.name, tensor.dtype, tensor.shape, i == 0, text);
    mlx_json::append_values(tensor.dtype, std::as_bytes(std::span(data[i])), text);
    mlx_json::append_tensor_end(text);
  }
  mlx_json::append_document_end(text);
  return text;
}

void check_text(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto source = open_memory(bytes);
  const auto document = mlx_json::read_document(*source);
  const auto in_pieces = mlx_json::read_document(*source, {.piece = 7});
  check(document.has_value() == in_pieces.has_value());
  if (!document) {
    check(document.error().message == in_pieces.error().message && document.error().code == in_pieces.error().code);
    check(document.error().code == Errc::kCorrupt || document.error().code == Errc::kUnsupported);
    return;
  }
  check_table(*document, text.size());
  check(document->checkpoints == in_pieces->checkpoints && document->table.metadata == in_pieces->table.metadata);

  const auto model = Model::from_bytes(bytes, "fuzz.mlx");
  check(model.has_value());
  const auto data = read_all(*model);
  if (!data) return check(data.error().code == Errc::kCorrupt);

  const std::string written = write(*model, *data);
  const auto again = Model::from_bytes(std::as_bytes(std::span(written)), "again.mlx");
  check(again.has_value() && again->metadata() == model->metadata());
  const auto same = [](const TensorInfo& a, const TensorInfo& b) {
    return a.name == b.name && a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape);
  };
  check(std::ranges::equal(model->tensors(), again->tensors(), same));
  const auto data_again = read_all(*again);
  check(data_again && *data_again == *data);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::check_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
