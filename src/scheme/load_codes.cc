#include "scheme/load_codes.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/block_loop.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/loaded.h"

namespace ballast {
namespace {

// Rows of a quantized weight, or bytes of another.
struct Block {
  const Weight* weight;
  std::size_t tensor;  // the first of the weight
  std::uint64_t first;
  std::uint64_t count;
};

class CodesLoad {
 public:
  CodesLoad(const WeightsReader& reader, const LoadOptions& options) : reader_(reader), options_(options) {}

  Result<LoadedModel> run() {
    for (const Weight& weight : reader_.weights()) {
      if (!add(weight)) {
        return fail(Errc::kUnsupported, "{}: tensor {}: the size of the model does not fit in 64 bits", escape(reader_.path()),
                    quote(weight.name));
      }
    }
    NameIndex index(tensors_.size());
    if (const auto same = index.insert_all(tensors_)) {
      return fail(Errc::kUnsupported, "{}: two tensors would be named {}", escape(reader_.path()),
                  quote(tensors_[same->first].name));
    }
    auto memory = TRY(Arena::allocate(reader_.path(), end_, options_));
    cut();
    reader_.expect_all();
    TRY((BlockLoop{.work = options_.work, .total = total_}.run(
        blocks_.size(), [&](unsigned, std::size_t i) { return read(blocks_[i], memory.data()); },
        [&](std::size_t i) {
          return BlockDone{.bytes = blocks_[i].count * unit_bytes(*blocks_[i].weight), .what = blocks_[i].weight->file};
        })));
    return LoadedModelAccess::make(reader_.path(), std::move(memory), std::move(tensors_), std::move(index));
  }

 private:
  bool add(const Weight& weight) {
    if (!weight.is_quantized()) return add(weight.name, weight.dtype, weight.shape, weight.bytes);
    const RowFormat& format = reader_.format(weight);
    const std::uint64_t packed = weight.rows * format.packed_bytes();
    const std::uint64_t parameters = weight.rows * format.groups() * sizeof(float);
    return add(weight.name, DType::kU8, {weight.rows, format.packed_bytes()}, packed) &&
           add(weight.name + ".scales", DType::kF32, {weight.rows, format.groups()}, parameters) &&
           add(weight.name + ".zero_points", DType::kF32, {weight.rows, format.groups()}, parameters);
  }

  // Assigns a tensor its place in memory. False if there is no room.
  bool add(std::string name, DType dtype, std::vector<std::uint64_t> shape, std::uint64_t bytes) {
    constexpr std::uint64_t kAlignment = 64;
    const auto begin = checked_add(end_, -end_ % kAlignment);
    const auto end = begin ? checked_add(*begin, bytes) : std::nullopt;
    if (!end) return false;
    tensors_.push_back({.name = names_.emplace_back(std::move(name)),
                        .shape = shapes_.emplace_back(std::move(shape)),
                        .begin = *begin,
                        .end = *end,
                        .file = 0,
                        .dtype = dtype});
    end_ = *end;
    total_ += bytes;
    return true;
  }

  // Bytes in memory of one row of a quantized weight, or of one byte of another.
  std::uint64_t unit_bytes(const Weight& weight) const {
    if (!weight.is_quantized()) return 1;
    const RowFormat& format = reader_.format(weight);
    return format.packed_bytes() + 2 * format.groups() * sizeof(float);
  }

  // The same blocks as in files that Ballast writes, so that each is read once.
  std::uint64_t block_units(const Weight& weight) const {
    if (weight.is_quantized()) return rows_of_block(reader_.format(weight).columns);
    if (weight.rows == 0 || weight.bytes % weight.rows != 0) return std::max<std::uint64_t>(weight.bytes, 1);
    const std::uint64_t row_bytes = std::max<std::uint64_t>(weight.bytes / weight.rows, 1);
    return rows_of_block(row_bytes) * row_bytes;
  }

  void cut() {
    std::size_t tensor = 0;
    for (const Weight& weight : reader_.weights()) {
      const std::uint64_t units = weight.is_quantized() ? weight.rows : weight.bytes;
      const std::uint64_t most = block_units(weight);
      for (std::uint64_t first = 0; first < units; first += most) {
        blocks_.push_back({.weight = &weight, .tensor = tensor, .first = first, .count = std::min(most, units - first)});
      }
      tensor += weight.is_quantized() ? 3 : 1;
    }
  }

  Result<void> read(const Block& block, std::byte* memory) const {
    const TensorInfo* const tensor = &tensors_[block.tensor];
    if (!block.weight->is_quantized()) {
      return reader_.read_bytes(*block.weight, block.first, {memory + tensor->begin + block.first, block.count});
    }
    const RowFormat& format = reader_.format(*block.weight);
    const auto floats = [&](const TensorInfo& parameters) {
      auto* const all = reinterpret_cast<float*>(memory + parameters.begin);
      return std::span(all + block.first * format.groups(), block.count * format.groups());
    };
    const std::span packed(memory + tensor[0].begin + block.first * format.packed_bytes(), block.count * format.packed_bytes());
    return reader_.read_codes(*block.weight, block.first,
                              {.packed = packed, .scales = floats(tensor[1]), .offsets = floats(tensor[2])});
  }

  const WeightsReader& reader_;
  const LoadOptions& options_;
  std::deque<std::string> names_;  // what tensors_ borrow from
  std::deque<std::vector<std::uint64_t>> shapes_;
  LargeVector<TensorInfo> tensors_;  // by their places in memory
  std::uint64_t end_ = 0;            // of the memory they take
  std::uint64_t total_ = 0;          // bytes of them all
  std::vector<Block> blocks_;
};

}  // namespace

Result<LoadedModel> load_codes(const WeightsReader& reader, const LoadOptions& options) {
  return CodesLoad(reader, options).run();
}

}  // namespace ballast
