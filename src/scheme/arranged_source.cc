#include "scheme/arranged_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/safetensors/layout.h"
#include "model/state.h"
#include "scheme/matrix.h"
#include "source/uri.h"

namespace ballast {
namespace {

// One tensor of the file, with the numbers that reading it needs.
struct Entry {
  ArrangedTensor tensor;
  std::uint64_t begin = 0;  // in the file
  std::uint64_t end = 0;
  std::uint64_t part_bytes = 0;  // of the view of one part
  std::uint64_t size = 0;        // of an element, in bytes; 1 if parts are taken whole
  std::uint64_t run = 0;         // elements that are consecutive in the tensor and in the view; 0 if parts are taken whole
};

// Rows of a view whose elements are apart in the tensor, gathered: what neighboring reads need is read once.
struct Slab {
  std::size_t entry = 0;
  std::size_t part = 0;
  std::uint64_t first_row = 0;
  std::vector<std::byte> bytes;
};

void scatter(const std::byte* from, std::uint64_t from_step, std::byte* to, std::uint64_t to_step, std::uint64_t count,
             std::uint64_t size) {
  const auto copy = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    for (std::uint64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step, from + i * from_step, kSize);
  };
  if (size == 2) return copy(std::integral_constant<std::size_t, 2>());
  if (size == 4) return copy(std::integral_constant<std::size_t, 4>());
  if (size == 1) return copy(std::integral_constant<std::size_t, 1>());
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(to + i * to_step, from + i * from_step, size);
}

class ArrangedSource final : public Source {
 public:
  ArrangedSource(const Model& model, std::string header, std::uint64_t size, std::vector<Entry> entries)
      : model_(model), header_(std::move(header)), size_(size), entries_(std::move(entries)) {}

  std::uint64_t size() const override { return size_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return fail(Errc::kIo, "{} bytes at offset {} are past the end at {}", out.size(), offset, size_);
    }
    if (offset < header_.size()) {
      const std::size_t part = std::min<std::size_t>(out.size(), header_.size() - offset);
      std::memcpy(out.data(), header_.data() + offset, part);
      offset += part;
      out = out.subspan(part);
    }
    auto next = std::ranges::upper_bound(entries_, offset, {}, &Entry::end);
    for (; !out.empty(); ++next) {
      const std::size_t part = std::min<std::size_t>(out.size(), next->end - offset);
      TRY(read_entry(*next, offset - next->begin, out.first(part)));
      offset += part;
      out = out.subspan(part);
    }
    return {};
  }

  // Announces the tensors that the extents are made of, in the order of the extents.
  void expect(std::span<const Extent> extents) const override {
    std::vector<TensorInfo> tensors;
    for (const Extent& extent : extents) {
      auto next = std::ranges::upper_bound(entries_, extent.begin, {}, &Entry::end);
      for (; next != entries_.end() && next->begin < extent.end; ++next) {
        for (const TensorInfo* const part : next->tensor.parts) tensors.push_back(*part);
      }
    }
    ModelAccess::expect(model_, tensors);
  }

  Result<std::span<const std::byte>> map() const override {
    return fail(Errc::kUnsupported, "tensors are arranged on reading, so there are no views; use read() or slice()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  Result<void> read_entry(const Entry& entry, std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
      const std::size_t part = offset / entry.part_bytes;
      const std::uint64_t skip = offset % entry.part_bytes;
      const std::size_t bytes = std::min<std::uint64_t>(out.size(), entry.part_bytes - skip);
      TRY(read_part(entry, part, skip, out.first(bytes)));
      offset += bytes;
      out = out.subspan(bytes);
    }
    return {};
  }

  Result<void> read_part(const Entry& entry, std::size_t part, std::uint64_t offset, std::span<std::byte> out) const {
    const TensorInfo& tensor = *entry.tensor.parts[part];
    if (entry.run == 0) return model_.read_into(tensor.name, offset, out);
    if (entry.run == 1) return read_strided(entry, part, offset, out);
    std::vector<Range> ranges;
    const std::uint64_t run_bytes = entry.run * entry.size;
    while (!out.empty()) {
      const std::uint64_t skip = offset % run_bytes;
      const std::size_t bytes = std::min<std::uint64_t>(out.size(), run_bytes - skip);
      const std::uint64_t at = entry.tensor.view.position(offset / run_bytes * entry.run) * entry.size + skip;
      ranges.push_back({.offset = at, .out = out.first(bytes)});
      offset += bytes;
      out = out.subspan(bytes);
    }
    return ModelAccess::read_parts(model_, tensor, std::move(ranges));
  }

  Result<void> read_strided(const Entry& entry, std::size_t part, std::uint64_t offset, std::span<std::byte> out) const {
    const std::uint64_t row_bytes = entry.tensor.view.shape.back() * entry.size;
    while (!out.empty()) {
      const auto slab = TRY(slab_of(entry, part, offset / row_bytes));
      const std::uint64_t skip = offset - slab->first_row * row_bytes;
      const std::size_t bytes = std::min<std::uint64_t>(out.size(), slab->bytes.size() - skip);
      std::memcpy(out.data(), slab->bytes.data() + skip, bytes);
      offset += bytes;
      out = out.subspan(bytes);
    }
    return {};
  }

  // The slab that has a row, counted over all axes but the last. Slabs do not go past an index of the axes before the last two.
  Result<std::shared_ptr<const Slab>> slab_of(const Entry& entry, std::size_t part, std::uint64_t row) const {
    const StridedView& view = entry.tensor.view;
    const std::uint64_t columns = view.shape.back();
    const std::uint64_t rows = view.shape.size() < 2 ? 1 : view.shape[view.shape.size() - 2];
    const std::uint64_t most = std::clamp<std::uint64_t>(kSlabBytes / (columns * entry.size), 1, rows);
    const std::uint64_t first = row / rows * rows + row % rows / most * most;
    const auto index = static_cast<std::size_t>(&entry - entries_.data());
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& slab : slabs_) {
        if (slab && slab->entry == index && slab->part == part && slab->first_row == first) return slab;
      }
    }
    const std::uint64_t count = std::min(most, (row / rows + 1) * rows - first);
    auto slab = std::make_shared<Slab>();
    *slab = {.entry = index, .part = part, .first_row = first, .bytes = std::vector<std::byte>(count * columns * entry.size)};
    TRY(gather(entry, *entry.tensor.parts[part], first, count, slab->bytes));
    const std::scoped_lock lock(mutex_);
    slabs_[next_slab_++ % slabs_.size()] = slab;
    return std::shared_ptr<const Slab>(std::move(slab));
  }

  // Reads along the axis whose elements are closest together in the tensor, and puts each where the view has it.
  Result<void> gather(const Entry& entry, const TensorInfo& tensor, std::uint64_t first, std::uint64_t count,
                      std::span<std::byte> out) const {
    const StridedView& view = entry.tensor.view;
    const std::uint64_t columns = view.shape.back();
    const std::uint64_t column_step = view.strides.back();
    const std::uint64_t row_step = view.strides.size() < 2 ? column_step : view.strides[view.strides.size() - 2];
    const bool along_rows = column_step <= row_step;  // of the view
    const std::uint64_t lines = along_rows ? count : columns;
    const std::uint64_t length = along_rows ? columns : count;
    const std::uint64_t step = along_rows ? column_step : row_step;
    const std::uint64_t line_bytes = ((length - 1) * step + 1) * entry.size;
    const std::uint64_t begin = view.position(first * columns);
    std::vector<std::byte> read(std::min(lines, lines_at_once(line_bytes)) * line_bytes);
    for (std::uint64_t line = 0; line < lines;) {
      const std::uint64_t now = std::min(lines - line, read.size() / line_bytes);
      std::vector<Range> ranges;
      for (std::uint64_t i = 0; i < now; ++i) {
        ranges.push_back({.offset = (begin + (line + i) * (along_rows ? row_step : column_step)) * entry.size,
                          .out = std::span(read).subspan(i * line_bytes, line_bytes)});
      }
      TRY(ModelAccess::read_parts(model_, tensor, std::move(ranges)));
      for (std::uint64_t i = 0; i < now; ++i) {
        const std::uint64_t to = (line + i) * (along_rows ? columns : 1) * entry.size;
        const std::uint64_t to_step = (along_rows ? 1 : columns) * entry.size;
        scatter(read.data() + i * line_bytes, step * entry.size, out.data() + to, to_step, length, entry.size);
      }
      line += now;
    }
    return {};
  }

  static std::uint64_t lines_at_once(std::uint64_t line_bytes) { return std::max<std::uint64_t>(kSlabBytes / line_bytes, 1); }

  static constexpr std::uint64_t kSlabBytes = std::uint64_t{4} << 20;

  const Model& model_;
  std::string header_;
  std::uint64_t size_;
  std::vector<Entry> entries_;  // by position; none is empty
  mutable std::mutex mutex_;
  mutable std::array<std::shared_ptr<const Slab>, 4> slabs_;
  mutable std::size_t next_slab_ = 0;
};

// An entry without its position.
Result<Entry> make_entry(ArrangedTensor tensor) {
  const TensorInfo& first = *tensor.parts.front();
  Entry entry{.tensor = std::move(tensor)};
  if (entry.tensor.view.is_whole(first.shape)) {
    entry.size = 1;
    entry.part_bytes = first.bytes();
    return entry;
  }
  if (bits(first.dtype) % 8 != 0) {
    return fail(Errc::kUnsupported, "tensor {}: cannot rearrange values of {}", quote(first.name), name(first.dtype));
  }
  entry.size = bits(first.dtype) / 8;
  entry.part_bytes = product(entry.tensor.view.shape) * entry.size;
  entry.run = entry.tensor.view.run();
  return entry;
}

}  // namespace

std::vector<std::uint64_t> ArrangedTensor::shape() const {
  std::vector<std::uint64_t> all = view.shape;
  if (stacked) all.insert(all.begin(), parts.size());
  return all;
}

Result<std::unique_ptr<Source>> open_arranged(const Model& model, std::vector<ArrangedTensor> tensors) {
  std::vector<TensorSpec> specs;
  for (const ArrangedTensor& tensor : tensors) {
    specs.push_back({.name = tensor.name, .dtype = tensor.parts.front()->dtype, .shape = tensor.shape()});
  }
  auto layout = TRY(safetensors::make_layout(specs, model.metadata()));
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::uint64_t bytes = TRY(safetensors::data_bytes(specs[i]));
    if (bytes == 0) continue;
    Entry entry = TRY(make_entry(std::move(tensors[i])));
    entry.begin = layout.offsets[i];
    entry.end = entry.begin + bytes;
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, {}, &Entry::begin);
  return std::make_unique<ArrangedSource>(model, std::move(layout.header), layout.file_size, std::move(entries));
}

Result<Model> arrange(const Model& model, std::vector<ArrangedTensor> tensors) {
  auto source = open_arranged(model, std::move(tensors));
  if (!source) return fail_at(shown(model.path()), source.error());
  const Folder* const given = ModelAccess::folder(model);
  std::vector<std::string> warnings(model.warnings().begin(), model.warnings().end());
  return ModelAccess::open_virtual(std::move(*source), model.path(), given != nullptr ? std::optional(*given) : std::nullopt,
                                   model.config(), std::move(warnings), ModelAccess::decoded(model));
}

}  // namespace ballast
