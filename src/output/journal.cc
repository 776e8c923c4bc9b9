#include "output/journal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "source/source.h"

namespace ballast {
namespace {

std::unexpected<Error> fail_here(const std::string& path) {
  return fail_errno(Errc::kWrite, errno, "{}: cannot write", escape(path));
}

bool append(const FileDescriptor& fd, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = ::write(fd.get(), at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    at += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

std::string read_whole(const std::string& path) {
  const auto source = open_file(path, Access::kPread);
  if (!source) return {};
  std::string text((*source)->size(), '\0');
  if (!(*source)->read_at(0, std::as_writable_bytes(std::span(text)))) return {};
  return text;
}

}  // namespace

Journal::Journal(std::string path, FileDescriptor fd, std::function<Result<void>()> sync)
    : path_(std::move(path)), fd_(std::move(fd)), sync_(std::move(sync)) {}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::move(other.fd_)),
      sync_(std::move(other.sync_)),
      done_(std::move(other.done_)),
      pending_(std::move(other.pending_)),
      pending_bytes_(other.pending_bytes_) {}

Result<Journal> Journal::open(std::string path, std::string_view key, std::function<Result<void>()> sync) {
  const std::string found = read_whole(path);
  const bool same = found.starts_with(key) && found.size() >= key.size();
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (same ? 0 : O_TRUNC), 0666));
  if (!fd) return fail_here(path);
  Journal journal(std::move(path), std::move(fd), std::move(sync));
  if (!same && !append(journal.fd_, key.data(), key.size())) return fail_here(journal.path_);
  if (same) {
    // Ignore a record that the last run wrote only in part.
    const std::size_t whole = (found.size() - key.size()) / sizeof(Record) * sizeof(Record);
    if (::ftruncate(journal.fd_.get(), static_cast<off_t>(key.size() + whole)) != 0) return fail_here(journal.path_);
    journal.read(std::string_view(found).substr(key.size(), whole));
  }
  return journal;
}

void Journal::read(std::string_view records) {
  for (; records.size() >= sizeof(Record); records.remove_prefix(sizeof(Record))) {
    Record record{};
    std::memcpy(&record, records.data(), sizeof(record));
    auto& ranges = done_[record.file];
    auto next = ranges.upper_bound(record.begin);
    if (next != ranges.begin() && std::prev(next)->second >= record.begin) {
      next = std::prev(next);
      record.begin = next->first;
    }
    while (next != ranges.end() && next->first <= record.end) {
      record.end = std::max(record.end, next->second);
      next = ranges.erase(next);
    }
    ranges.emplace(record.begin, record.end);
  }
}

std::uint64_t Journal::done_until(std::size_t file, std::uint64_t begin) const {
  const auto ranges = done_.find(file);
  if (ranges == done_.end()) return begin;
  const auto next = ranges->second.upper_bound(begin);
  return next == ranges->second.begin() ? begin : std::max(begin, std::prev(next)->second);
}

bool Journal::has(std::size_t file, std::uint64_t begin, std::uint64_t end) const { return done_until(file, begin) >= end; }

Result<void> Journal::add(std::size_t file, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t kFlushBytes = std::uint64_t{256} << 20;
  const std::scoped_lock lock(mutex_);
  pending_.push_back({.file = file, .begin = begin, .end = end});
  pending_bytes_ += end - begin;
  return pending_bytes_ < kFlushBytes ? Result<void>() : flush_locked();
}

Result<void> Journal::flush() {
  const std::scoped_lock lock(mutex_);
  return flush_locked();
}

Result<void> Journal::flush_locked() {
  if (pending_.empty()) return {};
  TRY(sync_());
  if (!append(fd_, pending_.data(), pending_.size() * sizeof(Record)) || ::fdatasync(fd_.get()) != 0) return fail_here(path_);
  pending_.clear();
  pending_bytes_ = 0;
  return {};
}

}  // namespace ballast
