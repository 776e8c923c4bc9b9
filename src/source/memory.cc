#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/try.h"
#include "source/source.h"

namespace ballast {
namespace {

Result<void> check_range(std::uint64_t offset, std::uint64_t count, std::uint64_t size) {
  if (offset <= size && count <= size - offset) return {};
  return fail(Errc::kIo, "cannot read {} bytes at offset {}: the size is {} bytes", count, offset, size);
}

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    TRY(check_range(offset, out.size(), bytes_.size()));
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

  Result<std::span<const std::byte>> map() const override { return bytes_; }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  std::span<const std::byte> bytes_;
};

class PiecesSource final : public Source {
 public:
  PiecesSource(std::string first, std::vector<std::span<const std::byte>> others)
      : first_(std::move(first)), pieces_(std::move(others)) {
    pieces_.insert(pieces_.begin(), std::as_bytes(std::span(first_)));
    for (const auto& piece : pieces_) {
      starts_.push_back(size_);
      size_ += piece.size();
    }
  }

  std::uint64_t size() const override { return size_; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    TRY(check_range(offset, out.size(), size_));
    auto piece = static_cast<std::size_t>(std::ranges::upper_bound(starts_, offset) - starts_.begin()) - 1;
    while (!out.empty()) {
      const std::span rest = pieces_[piece].subspan(offset - starts_[piece]);
      const std::size_t count = std::min(rest.size(), out.size());
      if (count > 0) std::memcpy(out.data(), rest.data(), count);
      out = out.subspan(count);
      offset += count;
      ++piece;
    }
    return {};
  }

  Result<std::span<const std::byte>> map() const override {
    return fail(Errc::kUnsupported, "view() is not available for a model made of tensors in memory; use read()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  std::string first_;
  std::vector<std::span<const std::byte>> pieces_;
  std::vector<std::uint64_t> starts_;
  std::uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_pieces(std::string first, std::vector<std::span<const std::byte>> others) {
  return std::make_unique<PiecesSource>(std::move(first), std::move(others));
}

std::unique_ptr<Source> open_memory(std::span<const std::byte> bytes) { return std::make_unique<MemorySource>(bytes); }

}  // namespace ballast
