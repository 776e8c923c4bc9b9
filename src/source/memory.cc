#include <cstring>

#include "base/fail.h"
#include "source/source.h"

namespace ballast {
namespace {

class MemorySource final : public Source {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const override { return bytes_.size(); }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return fail(Errc::kIo, "{} bytes at {} lie past the end ({} bytes)", out.size(), offset, bytes_.size());
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

  Result<std::span<const std::byte>> map() const override { return bytes_; }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Source> open_memory(std::span<const std::byte> bytes) { return std::make_unique<MemorySource>(bytes); }

}  // namespace ballast
