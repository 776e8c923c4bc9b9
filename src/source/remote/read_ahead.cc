#include "source/remote/read_ahead.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/try.h"

namespace ballast::remote {
namespace {

// The announced extents, split into chunks, and the threads that fetch them in order, at most `window_` chunks ahead of the
// reader.
class Plan {
 public:
  Plan(const Source& source, std::span<const Extent> extents, const ReadAheadOptions& options)
      : source_(source), window_(options.chunks) {
    for (Extent extent : extents) {
      for (; extent.begin < extent.end; extent.begin += options.chunk_bytes) {
        chunks_.push_back(Chunk{
            .begin = extent.begin, .end = std::min(extent.end, extent.begin + options.chunk_bytes), .bytes = {}, .error = {}});
      }
    }
    if (!std::ranges::is_sorted(chunks_, {}, &Chunk::begin)) chunks_.clear();
  }

  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  ~Plan() {
    {
      const std::scoped_lock lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
  }

  // The result for the first bytes of `out`: they were copied from a chunk, or the caller has to read them.
  struct Taken {
    std::uint64_t bytes;
    bool is_copied;
  };
  Result<Taken> take(std::uint64_t offset, std::span<std::byte> out) {
    std::unique_lock lock(mutex_);
    const auto behind = std::ranges::upper_bound(chunks_, offset, {}, &Chunk::begin);
    const auto up_to = [&](std::uint64_t end) { return std::min<std::uint64_t>(out.size(), end - offset); };
    if (behind == chunks_.begin() || offset >= std::prev(behind)->end) {
      return Taken{.bytes = behind == chunks_.end() ? out.size() : up_to(behind->begin), .is_copied = false};
    }
    if (fetchers_.empty()) start();
    Chunk& chunk = *std::prev(behind);
    const std::uint64_t count = up_to(chunk.end);
    advance_to(static_cast<std::size_t>(&chunk - chunks_.data()));
    if (chunk.state == State::kExpected) chunk.state = State::kGone;  // not started yet: the caller reads it faster itself
    changed_.wait(lock, [&] { return chunk.state != State::kFetching; });
    // Those who were to read it may have been cancelled before this reader came.
    if (chunk.error && chunk.error->code == Errc::kCancelled) release(chunk);
    if (chunk.state == State::kGone) return Taken{.bytes = count, .is_copied = false};
    if (chunk.error) return std::unexpected(*chunk.error);
    std::memcpy(out.data(), chunk.bytes.data() + (offset - chunk.begin), count);
    chunk.read += count;
    if (chunk.read >= chunk.end - chunk.begin) release(chunk);
    return Taken{.bytes = count, .is_copied = true};
  }

 private:
  enum class State { kExpected, kFetching, kReady, kGone };

  struct Chunk {
    std::uint64_t begin;
    std::uint64_t end;
    State state = State::kExpected;
    std::uint64_t read = 0;  // bytes that the reader has taken
    std::vector<std::byte> bytes;
    std::optional<Error> error;
  };

  // Frees the chunk and keeps its memory for the next ones.
  void release(Chunk& chunk) {
    chunk.state = State::kGone;
    if (spare_.size() < window_) spare_.push_back(std::move(chunk.bytes));
    std::vector<std::byte>().swap(chunk.bytes);
  }

  std::vector<std::byte> take_spare() {
    if (spare_.empty()) return {};
    std::vector<std::byte> bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }

  // Called at the first read, not earlier: of many files with announced reads, only one is read at a time.
  void start() {
    const std::size_t count = std::min(window_, chunks_.size());
    for (std::size_t i = 0; i < count; ++i) fetchers_.emplace_back([this] { fetch_chunks(); });
  }

  void fetch_chunks() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return is_stopped_ || next_ >= chunks_.size() || next_ < reached_ + window_; });
      if (is_stopped_ || next_ >= chunks_.size()) return;
      Chunk& chunk = chunks_[next_++];
      if (chunk.state != State::kExpected) continue;
      chunk.state = State::kFetching;
      std::vector<std::byte> bytes = take_spare();
      lock.unlock();
      auto fetched = fetch(chunk, bytes);
      lock.lock();
      chunk.state = State::kReady;
      chunk.bytes = std::move(bytes);
      if (!fetched) chunk.error = std::move(fetched.error());
      changed_.notify_all();
    }
  }

  Result<void> fetch(const Chunk& chunk, std::vector<std::byte>& bytes) const {
    try {
      bytes.resize(chunk.end - chunk.begin);
    } catch (const std::bad_alloc&) {  // must not escape from this thread
      return fail(Errc::kUnsupported, "out of memory for {} bytes of read-ahead", chunk.end - chunk.begin);
    }
    return source_.read_at(chunk.begin, bytes);
  }

  // Frees chunks that are far behind the reader and will probably not be read.
  void advance_to(std::size_t position) {
    if (position <= reached_) return;
    reached_ = position;
    for (; behind_ + window_ < reached_; ++behind_) {
      if (chunks_[behind_].state == State::kReady) release(chunks_[behind_]);
    }
    changed_.notify_all();
  }

  const Source& source_;
  const std::size_t window_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  std::size_t next_ = 0;     // next chunk to fetch
  std::size_t reached_ = 0;  // furthest chunk that was read
  std::size_t behind_ = 0;   // chunks before this one are released
  bool is_stopped_ = false;
  std::vector<std::vector<std::byte>> spare_;
  std::vector<std::jthread> fetchers_;  // last member, so that they are joined first
};

class ReadAhead final : public Source {
 public:
  ReadAhead(std::unique_ptr<Source> source, ReadAheadOptions options) : source_(std::move(source)), options_(options) {}

  std::uint64_t size() const override { return source_->size(); }

  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto plan = current();
    while (plan && !out.empty()) {
      const auto taken = TRY(plan->take(offset, out));
      if (!taken.is_copied) {
        TRY(source_->read_at(offset, out.first(taken.bytes)));
      }
      offset += taken.bytes;
      out = out.subspan(taken.bytes);
    }
    return plan ? Result<void>() : source_->read_at(offset, out);
  }

  Result<void> read_ranges(std::span<const Range> ranges) const override { return source_->read_ranges(ranges); }
  Result<std::span<const std::byte>> map() const override { return source_->map(); }
  Result<void> release(std::uint64_t offset, std::uint64_t length) const override { return source_->release(offset, length); }
  unsigned parallel_reads() const override { return source_->parallel_reads(); }
  std::string identity() const override { return source_->identity(); }

  void expect(std::span<const Extent> extents) const override {
    auto plan = extents.empty() ? nullptr : std::make_shared<Plan>(*source_, extents, options_);
    const std::scoped_lock lock(mutex_);
    plan_.swap(plan);
  }

 private:
  std::shared_ptr<Plan> current() const {
    const std::scoped_lock lock(mutex_);
    return plan_;
  }

  std::unique_ptr<Source> source_;
  ReadAheadOptions options_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<Plan> plan_;
};

}  // namespace

std::unique_ptr<Source> read_ahead(std::unique_ptr<Source> source, ReadAheadOptions options) {
  return std::make_unique<ReadAhead>(std::move(source), options);
}

}  // namespace ballast::remote
