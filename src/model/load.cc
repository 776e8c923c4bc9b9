#include <ballast/load.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

struct LoadedModel::State {
  std::string path;  // of the model, for messages
  Allocator* allocator = nullptr;
  std::byte* memory = nullptr;  // null when there is nothing to hold
  std::uint64_t bytes = 0;
  std::string names;                // of all tensors
  std::vector<std::uint64_t> dims;  // of all tensors
  LargeVector<TensorInfo> table;    // borrows from the two
  LargeVector<TensorView> tensors;  // of `table`, one each
  NameIndex index;                  // of `table`

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (memory != nullptr) allocator->free(memory, bytes);
  }

  Result<void> allocate(Allocator& from, std::uint64_t size);
  void copy_table(std::span<const TensorInfo> from);
};

namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;  // large enough for a disk, small enough to keep all threads busy
constexpr unsigned kDirectThreads = 8;  // direct reads wait for the disk, so there may be more of them than cores

// A run of bytes of one file, and where in memory it goes.
struct Piece {
  std::uint32_t file;
  std::uint64_t offset;
  std::uint64_t position;
  std::uint64_t bytes;
};

// One piece per file that has data: the range that its tensors span.
std::vector<Piece> find_pieces(std::span<const TensorInfo> tensors, std::span<const ModelFile> files) {
  std::vector<Piece> pieces;
  for (const TensorInfo& tensor : tensors) {  // by file
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

// Gives every piece its position and returns the memory they take. Direct reads land in place only where position and offset are
// congruent; that keeps values aligned too, unless a header of odd length put the data at an odd offset.
std::optional<std::uint64_t> place(std::span<Piece> pieces) {
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

// Cuts at multiples of the block size in memory, so that no two threads fill one huge page.
std::vector<Piece> cut_into_blocks(std::span<const Piece> pieces) {
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

// Fills `memory` block by block.
Result<void> read_pieces(std::span<const Shard> shards, std::span<const Piece> pieces, std::byte* memory,
                         const LoadOptions& options) {
  std::uint64_t total = 0;
  std::vector<bool> direct(shards.size());
  for (const Piece& piece : pieces) {
    direct[piece.file] = reads_directly(*shards[piece.file].source, options.path);
    total += piece.bytes;
  }
  unsigned threads = thread_count(0);
  for (const Piece& piece : pieces) {
    threads = std::max({threads, direct[piece.file] ? kDirectThreads : 0, shards[piece.file].source->parallel_reads()});
  }
  if (options.threads != 0) threads = options.threads;

  const std::vector<Piece> blocks = cut_into_blocks(pieces);
  std::mutex mutex;
  std::uint64_t done = 0;
  std::optional<Error> error;
  parallel_for(blocks.size(), threads, [&](unsigned, std::size_t i) {
    const Piece& block = blocks[i];
    const Shard& shard = shards[block.file];
    const std::span out(memory + block.position, block.bytes);
    const auto read =
        direct[block.file] ? shard.source->read_direct(block.offset, out) : shard.source->read_at(block.offset, out);

    const std::scoped_lock lock(mutex);
    done += block.bytes;
    if (!read && !error) error = Error(read.error()).at(shown(shard.path));
    if (options.progress && !error && !options.progress(done, total, shard.path)) {
      error = Error{.code = Errc::kCancelled, .message = "cancelled"};
    }
    return !error;
  });
  if (error) return std::unexpected(std::move(*error));
  return {};
}

}  // namespace

Result<void> LoadedModel::State::allocate(Allocator& from, std::uint64_t size) {
  if (size == 0) return {};
  std::byte* const given = from.allocate(size);
  // Not the caller's mistake, and no failed read either: well formed, but more than this machine or allocator can hold.
  if (given == nullptr) return fail(Errc::kUnsupported, "no memory for {} bytes", size);
  allocator = &from;
  memory = given;
  bytes = size;
  if (const auto rest = reinterpret_cast<std::uintptr_t>(given) % Source::kDirectAlignment; rest != 0) {
    return fail(Errc::kInvalidArgument, "the allocator's memory begins {} bytes past a multiple of {}", rest,
                Source::kDirectAlignment);
  }
  return {};
}

void LoadedModel::State::copy_table(std::span<const TensorInfo> from) {
  std::size_t name_bytes = 0;
  std::size_t rank_sum = 0;
  for (const TensorInfo& tensor : from) {
    name_bytes += tensor.name.size();
    rank_sum += tensor.shape.size();
  }
  names.reserve(name_bytes);  // so that what borrows from them stays valid
  dims.reserve(rank_sum);
  table.assign(from.begin(), from.end());
  for (TensorInfo& tensor : table) {
    const std::size_t name_at = names.size();
    names += tensor.name;
    tensor.name = std::string_view(names).substr(name_at);
    const std::size_t dims_at = dims.size();
    dims.insert(dims.end(), tensor.shape.begin(), tensor.shape.end());
    tensor.shape = Shape(dims).subspan(dims_at);
  }
}

LoadedModel::LoadedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel& LoadedModel::operator=(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

std::span<const TensorView> LoadedModel::tensors() const { return state_->tensors; }
std::uint64_t LoadedModel::bytes() const { return state_->bytes; }

const TensorView* LoadedModel::find(std::string_view name) const {
  const auto position = state_->index.find(state_->table, name);
  return position ? &state_->tensors[*position] : nullptr;
}

Result<TensorView> LoadedModel::view(std::string_view name) const& {
  if (const TensorView* const tensor = find(name)) return *tensor;
  return fail(Errc::kNotFound, "{}: no tensor {} among {}", escape(state_->path), quote(name), tensors().size());
}

Result<LoadedModel> Model::load_all(const LoadOptions& options) const {
  std::vector<Piece> pieces = find_pieces(tensors(), files());
  const auto bytes = place(pieces);
  if (!bytes) return fail(Errc::kUnsupported, "{}: the files hold more bytes than 64 bits can count", escape(path()));
  if (options.memory_limit != 0 && *bytes > options.memory_limit) {
    return fail(Errc::kInvalidArgument, "{}: loading takes {} bytes, the limit is {}", escape(path()), *bytes,
                options.memory_limit);
  }
  auto loaded = std::make_unique<LoadedModel::State>();
  loaded->path = path();
  Allocator& allocator = options.allocator != nullptr ? *options.allocator : host_allocator();
  if (auto allocated = loaded->allocate(allocator, *bytes); !allocated) return fail_at(escape(path()), allocated.error());
  TRY(read_pieces(state_->shards, pieces, loaded->memory, options));

  loaded->copy_table(tensors());
  loaded->index = state_->index;
  loaded->tensors.reserve(tensors().size());
  std::vector<const Piece*> of_file(files().size());
  for (const Piece& piece : pieces) of_file[piece.file] = &piece;
  for (const TensorInfo& tensor : loaded->table) {
    TensorView view{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}};
    if (tensor.bytes() > 0) {
      const Piece& piece = *of_file[tensor.file];
      view.bytes = {loaded->memory + piece.position + (state_->position(tensor) - piece.offset), tensor.bytes()};
    }
    loaded->tensors.push_back(view);
  }
  return LoadedModel(std::move(loaded));
}

}  // namespace ballast
