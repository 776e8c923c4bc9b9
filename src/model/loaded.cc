#include "model/loaded.h"

#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "source/source.h"

namespace ballast {

Result<Arena> Arena::allocate(const std::string& path, std::uint64_t bytes, const LoadOptions& options) {
  if (options.work.memory_limit != 0 && bytes > options.work.memory_limit) {
    return fail(Errc::kInvalidArgument, "{}: loading needs {} bytes, but the memory limit is {}", escape(path), bytes,
                options.work.memory_limit);
  }
  Arena arena;
  if (bytes == 0) return arena;
  Allocator& allocator = options.allocator != nullptr ? *options.allocator : host_allocator();
  std::byte* const given = allocator.allocate(bytes);
  // kUnsupported, because it is neither a wrong argument nor a failed read: the model is valid but too large for this machine.
  if (given == nullptr) return fail(Errc::kUnsupported, "{}: cannot allocate {} bytes: out of memory", escape(path), bytes);
  arena.allocator_ = &allocator;
  arena.data_ = given;
  arena.size_ = bytes;
  if (const auto rest = reinterpret_cast<std::uintptr_t>(given) % Source::kDirectAlignment; rest != 0) {
    return fail(Errc::kInvalidArgument, "{}: the allocator returned memory {} bytes past a multiple of {}; it must be aligned",
                escape(path), rest, Source::kDirectAlignment);
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : allocator_(other.allocator_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena::~Arena() {
  if (data_ != nullptr) allocator_->free(data_, size_);
}

struct LoadedModel::State {
  std::string path;  // of the model, for messages
  Arena memory;
  std::string names;                // of all tensors
  std::vector<std::uint64_t> dims;  // of all tensors
  LargeVector<TensorInfo> table;    // points into `names` and `dims`
  LargeVector<TensorView> tensors;  // one per entry of `table`
  NameIndex index;                  // for `table`

  void copy_names_and_shapes();
  void make_views();
};

void LoadedModel::State::copy_names_and_shapes() {
  std::size_t name_bytes = 0;
  std::size_t rank_sum = 0;
  for (const TensorInfo& tensor : table) {
    name_bytes += tensor.name.size();
    rank_sum += tensor.shape.size();
  }
  names.reserve(name_bytes);  // must not move: `table` points into it
  dims.reserve(rank_sum);
  for (TensorInfo& tensor : table) {
    const std::size_t name_at = names.size();
    names += tensor.name;
    tensor.name = std::string_view(names).substr(name_at);
    const std::size_t dims_at = dims.size();
    dims.insert(dims.end(), tensor.shape.begin(), tensor.shape.end());
    tensor.shape = Shape(dims).subspan(dims_at);
  }
}

void LoadedModel::State::make_views() {
  tensors.reserve(table.size());
  for (const TensorInfo& tensor : table) {
    TensorView view{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = {}};
    if (tensor.bytes() > 0) view.bytes = {memory.data() + tensor.begin, tensor.bytes()};
    tensors.push_back(view);
  }
}

LoadedModel LoadedModelAccess::make(std::string path, Arena memory, LargeVector<TensorInfo> tensors, NameIndex index) {
  auto state = std::make_unique<LoadedModel::State>(LoadedModel::State{.path = std::move(path),
                                                                       .memory = std::move(memory),
                                                                       .names = {},
                                                                       .dims = {},
                                                                       .table = std::move(tensors),
                                                                       .tensors = {},
                                                                       .index = std::move(index)});
  state->copy_names_and_shapes();
  state->make_views();
  return LoadedModel(std::move(state));
}

LoadedModel::LoadedModel(std::unique_ptr<State> state) : state_(std::move(state)) {}
LoadedModel::LoadedModel(LoadedModel&&) noexcept = default;
LoadedModel& LoadedModel::operator=(LoadedModel&&) noexcept = default;
LoadedModel::~LoadedModel() = default;

std::span<const TensorView> LoadedModel::tensors() const { return state_->tensors; }
std::uint64_t LoadedModel::bytes() const { return state_->memory.size(); }

const TensorView* LoadedModel::find(std::string_view name) const {
  const auto position = state_->index.find(state_->table, name);
  return position ? &state_->tensors[*position] : nullptr;
}

Result<TensorView> LoadedModel::view(std::string_view name) const& {
  if (const TensorView* const tensor = find(name)) return *tensor;
  return fail(Errc::kNotFound, "{}: no tensor {} among {}{}", escape(state_->path), quote(name), tensors().size(),
              did_you_mean(name, tensors()));
}

}  // namespace ballast
