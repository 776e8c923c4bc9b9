#include <ballast/load.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/block_loop.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/loaded.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{8}
                                      << 20;  // large enough for disk throughput, small enough to keep all threads busy
constexpr unsigned kDirectThreads = 8;        // direct reads wait for the disk, so more threads than cores help

// A contiguous range of one file and its position in memory.
struct Piece {
  std::uint32_t file;
  std::uint64_t offset;
  std::uint64_t position;
  std::uint64_t bytes;
};

// Returns one piece per file that has data: the range that its tensors span.
std::vector<Piece> find_pieces(std::span<const TensorInfo> tensors, std::span<const ModelFile> files) {
  std::vector<Piece> pieces;
  for (const TensorInfo& tensor : tensors) {  // sorted by file
    if (tensor.bytes() == 0) continue;
    if (pieces.empty() || pieces.back().file != tensor.file) {
      pieces.push_back({.file = tensor.file, .offset = tensor.begin, .position = 0, .bytes = tensor.bytes()});
    }
    Piece& piece = pieces.back();
    const std::uint64_t end = std::max(piece.offset + piece.bytes, tensor.end);
    piece.offset = std::min(piece.offset, tensor.begin);
    piece.bytes = end - piece.offset;
  }
  for (Piece& piece : pieces) piece.offset += files[piece.file].data_start;
  return pieces;
}

// Assigns a position to every piece and returns the total size. Direct reads need a position that is congruent to the file
// offset. This also keeps values aligned, unless the header has an odd length; then the piece is only aligned.
std::optional<std::uint64_t> assign_positions(std::span<Piece> pieces) {
  constexpr std::uint64_t kLargestValue = 8;
  constexpr std::uint64_t kAlignment = 64;
  std::uint64_t end = 0;
  for (Piece& piece : pieces) {
    const bool congruent = piece.offset % kLargestValue == 0;
    const std::uint64_t gap = congruent ? (piece.offset - end) % Source::kDirectAlignment : -end % kAlignment;
    const auto position = checked_add(end, gap);
    const auto next = position ? checked_add(*position, piece.bytes) : std::nullopt;
    if (!next) return std::nullopt;
    piece.position = *position;
    end = *next;
  }
  return end;
}

// Splits at multiples of the block size in memory, so that two threads never fill the same huge page.
std::vector<Piece> split_into_blocks(std::span<const Piece> pieces) {
  std::vector<Piece> blocks;
  for (const Piece& piece : pieces) {
    for (std::uint64_t done = 0; done < piece.bytes;) {
      const std::uint64_t room = kBlockBytes - (piece.position + done) % kBlockBytes;
      const std::uint64_t bytes = std::min(room, piece.bytes - done);
      blocks.push_back({.file = piece.file, .offset = piece.offset + done, .position = piece.position + done, .bytes = bytes});
      done += bytes;
    }
  }
  return blocks;
}

bool reads_directly(const Source& source, LoadPath path) {
  constexpr double kMostlyCached = 0.5;
  return path == LoadPath::kDirect || (path == LoadPath::kAuto && source.cached_share() < kMostlyCached);
}

// Fills `memory` in blocks.
Result<void> read_pieces(std::span<const Shard> shards, std::span<const Piece> pieces, std::byte* memory,
                         const LoadOptions& options) {
  std::uint64_t total = 0;
  std::vector<bool> direct(shards.size());
  for (const Piece& piece : pieces) {
    direct[piece.file] = reads_directly(*shards[piece.file].source, options.path);
    total += piece.bytes;
  }
  unsigned threads = thread_count(options.work.threads);
  for (const Piece& piece : pieces) {
    if (options.work.threads != 0) break;
    threads = std::max({threads, direct[piece.file] ? kDirectThreads : 0, shards[piece.file].source->parallel_reads()});
  }

  const std::vector<Piece> blocks = split_into_blocks(pieces);
  return BlockLoop{.work = options.work, .total = total, .threads = threads}.run(
      blocks.size(),
      [&](unsigned, std::size_t i) -> Result<void> {
        const Piece& block = blocks[i];
        const Shard& shard = shards[block.file];
        const std::span out(memory + block.position, block.bytes);
        const auto read =
            direct[block.file] ? shard.source->read_direct(block.offset, out) : shard.source->read_at(block.offset, out);
        return read ? read : fail_at(shown(shard.path), read.error());
      },
      [&](std::size_t i) { return BlockDone{.bytes = blocks[i].bytes, .what = shards[blocks[i].file].path}; });
}

}  // namespace

Result<LoadedModel> Model::load_all(const LoadOptions& options) const {
  std::vector<Piece> pieces = find_pieces(tensors(), files());
  const auto bytes = assign_positions(pieces);
  if (!bytes) return fail(Errc::kUnsupported, "{}: the total size overflows 64 bits", escape(path()));
  auto memory = TRY(Arena::allocate(path(), *bytes, options));
  TRY(read_pieces(state_->shards, pieces, memory.data(), options));

  LargeVector<TensorInfo> table(tensors().begin(), tensors().end());
  std::vector<const Piece*> of_file(files().size());
  for (const Piece& piece : pieces) of_file[piece.file] = &piece;
  for (TensorInfo& tensor : table) {
    if (tensor.bytes() == 0) continue;
    const Piece& piece = *of_file[tensor.file];
    const std::uint64_t begin = piece.position + (state_->position(tensor) - piece.offset);
    tensor.end = begin + tensor.bytes();
    tensor.begin = begin;
  }
  return LoadedModelAccess::make(path(), std::move(memory), std::move(table), state_->index);
}

}  // namespace ballast
