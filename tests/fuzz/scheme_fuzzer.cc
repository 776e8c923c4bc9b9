// Takes its input for a config.json, a zero byte and a file. If the weights are accepted, rows of all of them must be readable,
// in any number at a time, and the values must be the same.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/weights.h>

#include "check.h"
#include "model/state.h"
#include "safetensors_mutator.h"
#include "scheme/reader.h"

namespace ballast {
namespace {

constexpr std::uint64_t kMostRows = 5;

// The decoded bytes of rows [first, first + count); empty if that fails.
std::vector<std::byte> read(const Weights& weights, const Weight& weight, std::uint64_t first, std::uint64_t count) {
  std::vector<std::byte> out(weight.elements() / weight.rows * count * sizeof(float));
  const auto done = weights.read_rows(weight.name, first, count, DType::kF32, out);
  if (done) return out;
  check(done.error().code == Errc::kCorrupt && !done.error().message.empty());
  return {};
}

void check_weight(const Weights& weights, const Weight& weight) {
  check(weight.rows > 0 && weight.elements() % weight.rows == 0 && weight.storage.group_size > 0);
  const std::uint64_t count = std::min(weight.rows, kMostRows);
  for (const std::uint64_t first : {std::uint64_t{0}, (weight.rows - count) / 2, weight.rows - count}) {
    const std::vector<std::byte> rows = read(weights, weight, first, count);
    if (rows.empty()) return;
    const std::vector<std::byte> last = read(weights, weight, first + count - 1, 1);
    check(std::ranges::equal(last, std::span(rows).last(last.size())));
  }
}

void check_model(std::string_view config, std::span<const std::byte> file) {
  auto model = Model::from_bytes(file, "fuzz");
  if (!model) return;
  if (auto parsed = parse_config(config)) ModelAccess::set_config(*model, std::move(*parsed));
  std::size_t tensors = model->tensors().size();
  const auto weights = Weights::from_model(std::move(*model));
  if (!weights) return check(!weights.error().message.empty());
  for (const Weight& weight : weights->weights()) {
    check(weights->find(weight.name) == &weight && !weight.tensors.empty());
    check(weight.tensors.size() <= tensors);
    if (weight.is_quantized()) check_weight(*weights, weight);
  }
  const auto found = reader_of(*weights).check_values();
  check(found || found.error().code == Errc::kCorrupt);
}

}  // namespace
}  // namespace ballast

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed) {
  constexpr unsigned kConfigs = 4;
  const auto* const zero = static_cast<const std::uint8_t*>(size == 0 ? nullptr : std::memchr(data, 0, size));
  if (zero == nullptr || seed % kConfigs == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto config = static_cast<std::size_t>(zero - data) + 1;
  return config + ballast::mutate_safetensors(data + config, size - config, max_size - config, seed / kConfigs);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  if (zero == std::string_view::npos) return 0;
  ballast::check_model(input.substr(0, zero), std::as_bytes(std::span(data, size).subspan(zero + 1)));
  return 0;
}
