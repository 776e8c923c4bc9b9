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

// What is expected, in chunks, and the threads that fetch them one after another, no further ahead than there is room for.
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

  // What `out` begins with, as far as it is of one kind: copied from a chunk, or left to the caller to read.
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
    if (chunk.state == State::kExpected) chunk.state = State::kGone;  // the caller is the first to come for it
    changed_.wait(lock, [&] { return chunk.state != State::kOnItsWay; });
    if (chunk.state == State::kGone) return Taken{.bytes = count, .is_copied = false};
    if (chunk.error) return std::unexpected(*chunk.error);
    std::memcpy(out.data(), chunk.bytes.data() + (offset - chunk.begin), count);
    chunk.read += count;
    if (chunk.read >= chunk.end - chunk.begin) let_go(chunk);
    return Taken{.bytes = count, .is_copied = true};
  }

 private:
  enum class State { kExpected, kOnItsWay, kThere, kGone };

  struct Chunk {
    std::uint64_t begin;
    std::uint64_t end;
    State state = State::kExpected;
    std::uint64_t read = 0;  // bytes of it
    std::vector<std::byte> bytes;
    std::optional<Error> error;
  };

  // Its memory is for the next ones.
  void let_go(Chunk& chunk) {
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

  // At the first read: of many files that are expected one is read after the other.
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
      chunk.state = State::kOnItsWay;
      std::vector<std::byte> bytes = take_spare();
      lock.unlock();
      auto fetched = fetch(chunk, bytes);
      lock.lock();
      chunk.state = State::kThere;
      chunk.bytes = std::move(bytes);
      if (!fetched) chunk.error = std::move(fetched.error());
      changed_.notify_all();
    }
  }

  Result<void> fetch(const Chunk& chunk, std::vector<std::byte>& bytes) const {
    try {
      bytes.resize(chunk.end - chunk.begin);
    } catch (const std::bad_alloc&) {  // a thread of our own has nobody to throw it to
      return fail(Errc::kUnsupported, "no memory for {} bytes that are read ahead", chunk.end - chunk.begin);
    }
    return source_.read_at(chunk.begin, bytes);
  }

  // What lies far behind will hardly be read any more.
  void advance_to(std::size_t position) {
    if (position <= reached_) return;
    reached_ = position;
    for (; behind_ + window_ < reached_; ++behind_) {
      if (chunks_[behind_].state == State::kThere) let_go(chunks_[behind_]);
    }
    changed_.notify_all();
  }

  const Source& source_;
  const std::size_t window_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;
  std::size_t next_ = 0;     // to be fetched
  std::size_t reached_ = 0;  // the furthest that was read from
  std::size_t behind_ = 0;   // those before it are not held any more
  bool is_stopped_ = false;
  std::vector<std::vector<std::byte>> spare_;
  std::vector<std::jthread> fetchers_;  // last, so that they end first
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
