#include <ballast/extract.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>

#include <ballast/convert.h>

#include "base/block_loop.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/npy/npy.h"
#include "model/slice.h"
#include "output/output.h"
#include "source/source.h"

namespace ballast {
namespace {

// Splits a slice along the first dimension.
class RowSlices {
 public:
  RowSlices(Shape shape, std::span<const Slice> slices, std::uint64_t rows, std::uint64_t row_bytes)
      : slices_(slices.begin(), slices.end()), rows_(rows) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{8} << 20;
    // Two rows end at a byte boundary even if one does not.
    step_ = std::max<std::uint64_t>(kMostBytes / std::max<std::uint64_t>(row_bytes, 1) / 2 * 2, 2);
    if (slices_.empty() && !shape.empty()) slices_.emplace_back();
    if (!shape.empty()) range_ = resolve_slice(slices_.front(), static_cast<std::int64_t>(shape.front()));
  }

  bool done() const { return at_ >= rows_; }

  std::span<const Slice> next() {
    const std::uint64_t end = std::min(at_ + step_, rows_);
    if (!slices_.empty()) {
      const auto position = [&](std::uint64_t row) { return range_.start + static_cast<std::int64_t>(row) * range_.step; };
      const std::int64_t last = position(end - 1) + (range_.step > 0 ? 1 : -1);
      slices_.front() = {.start = position(at_), .stop = last < 0 ? std::nullopt : std::optional(last), .step = range_.step};
    }
    at_ = end;
    return slices_;
  }

 private:
  std::vector<Slice> slices_;
  SliceRange range_{};
  std::uint64_t rows_;
  std::uint64_t step_;
  std::uint64_t at_ = 0;
};

// Fails if the path is a file of something else, which may be worth more than a tensor that can be extracted again.
Result<void> check_replaced(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::is_empty(path, error)) return {};
  std::array<std::byte, 6> start{};
  const auto file = open_file(path, Access::kPread);
  if (file && (*file)->read_at(0, start) && is_npy(start)) return {};
  return fail(Errc::kWrite, "{}: the file exists and is not a .npy file; choose another name, or replace it (force)",
              escape(path));
}

}  // namespace

Result<DType> write_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const WriteBytes& write,
                        const WorkOptions& work) {
  const TensorInfo* const tensor = model.find(name);
  if (tensor == nullptr) return std::unexpected(model.slice(name, {}).error());
  const auto error_here = [&](const Error& error) {
    return fail_at(escape(model.path()), Error(error).at(fmt::format("tensor {}", quote(name))));
  };
  const DType dtype = npy_descriptor(tensor->dtype).empty() ? DType::kF32 : tensor->dtype;
  if (!can_convert(tensor->dtype, dtype)) {
    return error_here({.code = Errc::kUnsupported, .message = fmt::format("NumPy has no {}", ballast::name(tensor->dtype))});
  }
  if (constexpr std::size_t kMostDims = 64; tensor->shape.size() > kMostDims) {
    return error_here({.code = Errc::kUnsupported,
                       .message = fmt::format("has {} dimensions, NumPy allows {}", tensor->shape.size(), kMostDims)});
  }
  const auto plan = plan_slice(tensor->shape, tensor->dtype, slices);
  if (!plan) return error_here(plan.error());
  TRY(write(as_bytes(npy_header(dtype, plan->shape))));

  const std::uint64_t rows = plan->bytes == 0 ? 0 : plan->shape.empty() ? 1 : plan->shape.front();
  RowSlices parts(tensor->shape, slices, rows, rows == 0 ? 0 : plan->bytes / rows);
  std::uint64_t done_bytes = 0;
  while (!parts.done()) {
    if (!report(work, done_bytes, plan->bytes, name)) return fail(Errc::kCancelled, "cancelled");
    const auto part = TRY(model.slice(name, parts.next()));
    done_bytes += part.bytes().size();
    if (dtype == tensor->dtype) {
      TRY(write(part.bytes()));
      continue;
    }
    const std::size_t size = part.bytes().size() * 8 / bits(tensor->dtype) * bits(dtype) / 8;
    const Bytes converted(allocate_bytes(size));
    if (auto done = convert_values(tensor->dtype, part.bytes(), dtype, {converted.get(), size}); !done) {
      return error_here(done.error());
    }
    TRY(write({converted.get(), size}));
  }
  return dtype;
}

Result<DType> save_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const std::string& path,
                       const SaveNpyOptions& options) {
  if (!options.force) TRY(check_replaced(path));
  auto output = Output::file(path);
  const auto file = TRY(output.add(""));
  std::uint64_t offset = 0;
  auto dtype = TRY(write_npy(
      model, name, slices,
      [&](std::span<const std::byte> bytes) -> Result<void> {
        auto written = output[file].write_at(offset, bytes);
        offset += bytes.size();
        return written;
      },
      options.work));
  TRY(output.commit(true));
  return dtype;
}

}  // namespace ballast
