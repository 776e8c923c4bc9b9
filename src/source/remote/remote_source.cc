#include "source/remote/remote_source.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/parallel.h"
#include "source/remote/transfers.h"

namespace ballast::remote {
namespace {

class RemoteSource final : public Source {
 public:
  explicit RemoteSource(std::unique_ptr<RemoteFile> file) : file_(std::move(file)) {}

  std::uint64_t size() const override { return file_->version().size; }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const Range range{.offset = offset, .out = out};
    return read_ranges({&range, 1});
  }

  Result<void> read_ranges(std::span<const Range> ranges) const override {
    std::vector<Range> rest;
    for (Range range : ranges) {
      if (range.offset > size() || range.out.size() > size() - range.offset) {
        return fail(Errc::kIo, "cannot read {} bytes at offset {}: the size is {} bytes", range.out.size(), range.offset, size());
      }
      take_front(range);
      if (!range.out.empty()) rest.push_back(range);
    }
    if (rest.empty()) return {};
    if (!file_->supports_ranges()) {
      return fail(Errc::kUnsupported, "the server does not support range requests, and the file has {} bytes; download it first",
                  size());
    }
    std::ranges::sort(rest, {}, &Range::offset);
    const auto transfers = plan_transfers(rest);
    return try_parallel(transfers.size(), kConnections, [&](unsigned, std::size_t i) { return file_->fetch(transfers[i]); });
  }

  Result<std::span<const std::byte>> map() const override {
    return fail(Errc::kUnsupported, "view() is not available for a remote file; use read()");
  }
  Result<void> release(std::uint64_t, std::uint64_t) const override { return {}; }
  unsigned parallel_reads() const override { return kConnections; }
  std::string identity() const override {
    const Version& version = file_->version();
    return version.etag.empty() ? version.last_modified : version.etag;
  }

 private:
  // Copies the bytes that are in front() and shortens `range` to the rest.
  void take_front(Range& range) const {
    const auto front = file_->front();
    if (range.offset >= front.size()) return;
    const std::size_t count = std::min(front.size() - range.offset, range.out.size());
    if (count > 0) std::memcpy(range.out.data(), front.data() + range.offset, count);
    range = {.offset = range.offset + count, .out = range.out.subspan(count)};
  }

  std::unique_ptr<RemoteFile> file_;
};

}  // namespace

std::unique_ptr<Source> open_remote_source(std::unique_ptr<RemoteFile> file) {
  return std::make_unique<RemoteSource>(std::move(file));
}

}  // namespace ballast::remote
