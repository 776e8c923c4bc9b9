// What opening costs, by number of tensors. Run it from an optimized build:
//   build/release/bench/open_bench

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <ballast/model.h>

#include "format/safetensors/header.h"

namespace {

using ballast::Errc;
using ballast::Model;

std::string tensor_name(std::int64_t i) {
  return fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 128, i % 128);
}

constexpr std::uint64_t kMaxHeaderBytes = 1'000'000'000;  // a million tensors take more than the default

enum class Layout { kPacked, kOverlapping };

// The front of a file of `count` tensors, 4 KiB each, whose data follows or, when they overlap, is all the same 4 KiB.
struct FileFront {
  std::string bytes;
  std::uint64_t file_size;
};

FileFront make_front(std::int64_t count, Layout layout, std::int64_t first = 0) {
  constexpr std::int64_t kTensorBytes = 4096;  // 32 x 64 of F16
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = layout == Layout::kPacked ? i * kTensorBytes : 0;
    fmt::format_to(std::back_inserter(text), R"({}"{}":{{"dtype":"F16","shape":[32,64],"data_offsets":[{},{}]}})",
                   i == 0 ? '{' : ',', tensor_name(first + i), begin, begin + kTensorBytes);
  }
  text += '}';
  const std::uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += text;
  const auto data = static_cast<std::uint64_t>(layout == Layout::kPacked ? count * kTensorBytes : kTensorBytes);
  const std::uint64_t size = bytes.size() + data;
  return {.bytes = std::move(bytes), .file_size = size};
}

// A file, or several shards, that go away with their owner. The data is a hole: opening never reads it.
class TemporaryModel {
 public:
  explicit TemporaryModel(std::span<const FileFront> fronts) {
    std::string folder = (std::filesystem::temp_directory_path() / "ballast-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make " + folder);
    folder_ = path_ = folder;
    for (std::size_t i = 0; i < fronts.size(); ++i) {
      const auto file = folder_ / fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, fronts.size());
      std::ofstream(file, std::ios::binary) << fronts[i].bytes;
      std::filesystem::resize_file(file, fronts[i].file_size);
      if (fronts.size() == 1) path_ = file;
    }
  }
  explicit TemporaryModel(const FileFront& front) : TemporaryModel(std::span(&front, 1)) {}
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  ~TemporaryModel() { std::filesystem::remove_all(folder_); }

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path folder_;
  std::filesystem::path path_;
};

// Times should grow as the bytes do. Large tables are in fresh memory at each open, small ones in what the last one left: where
// the first touch of memory is slow, as in virtual machines, one open of many tensors must not be compared with the mean of
// others.
constexpr double kWarmUp = 0.5;  // seconds

void count_work(benchmark::State& state, std::int64_t tensors, const FileFront& front) {
  state.SetItemsProcessed(state.iterations() * tensors);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(front.bytes.size()));
}

void open_model(benchmark::State& state) {
  const FileFront front = make_front(state.range(0), Layout::kPacked);
  const TemporaryModel file(front);
  while (state.KeepRunning()) {
    const auto model = Model::open(file.path(), {.max_header_bytes = kMaxHeaderBytes});
    if (!model || std::cmp_not_equal(model->tensors().size(), state.range(0))) {
      return state.SkipWithError(model ? "wrong number of tensors" : model.error().message.c_str());
    }
  }
  count_work(state, state.range(0), front);
}
BENCHMARK(open_model)->RangeMultiplier(10)->Range(1'000, 1'000'000)->MinWarmUpTime(kWarmUp)->Unit(benchmark::kMillisecond);

void open_shards(benchmark::State& state) {
  constexpr std::int64_t kShards = 8;
  const std::int64_t each = state.range(0) / kShards;
  std::vector<FileFront> fronts;
  for (std::int64_t i = 0; i < kShards; ++i) fronts.push_back(make_front(each, Layout::kPacked, i * each));
  const TemporaryModel folder(fronts);
  while (state.KeepRunning()) {
    const auto model = Model::open(folder.path());
    if (!model || std::cmp_not_equal(model->tensors().size(), each * kShards)) {
      return state.SkipWithError(model ? "wrong number of tensors" : model.error().message.c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * each * kShards);
}
BENCHMARK(open_shards)->RangeMultiplier(10)->Range(10'000, 1'000'000)->MinWarmUpTime(kWarmUp)->Unit(benchmark::kMillisecond);

void parse_header(benchmark::State& state) {
  const FileFront front = make_front(state.range(0), Layout::kPacked);
  while (state.KeepRunning()) {
    const auto header = ballast::safetensors::parse_header(std::as_bytes(std::span(front.bytes)), front.file_size,
                                                           {.max_header_bytes = kMaxHeaderBytes});
    if (!header || std::cmp_not_equal(header->tensors.size(), state.range(0))) {
      return state.SkipWithError(header ? "wrong number of tensors" : header.error().message.c_str());
    }
  }
  count_work(state, state.range(0), front);
}
BENCHMARK(parse_header)->RangeMultiplier(10)->Range(1'000, 1'000'000)->MinWarmUpTime(kWarmUp)->Unit(benchmark::kMillisecond);

void find_by_name(benchmark::State& state) {
  const FileFront front = make_front(state.range(0), Layout::kPacked);
  const TemporaryModel file(front);
  const auto model = Model::open(file.path());
  if (!model) return state.SkipWithError(model.error().message.c_str());
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(state.range(0)));
  constexpr std::int64_t kStride = 7919;  // visits all, in no order that a cache would like
  for (std::int64_t i = 0; i < state.range(0); ++i) names.push_back(tensor_name(i * kStride % state.range(0)));
  while (state.KeepRunning()) {
    for (const std::string& name : names) {
      const ballast::TensorInfo* tensor = model->find(name);
      if (tensor == nullptr || tensor->name != name) return state.SkipWithError("a name was not found");
    }
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(find_by_name)->Arg(1'000)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

void reject_overlapping(benchmark::State& state) {
  const FileFront front = make_front(state.range(0), Layout::kOverlapping);
  while (state.KeepRunning()) {
    const auto header = ballast::safetensors::parse_header(std::as_bytes(std::span(front.bytes)), front.file_size);
    if (header || header.error().code != Errc::kCorrupt || !header.error().message.contains("overlaps")) {
      return state.SkipWithError("overlapping tensors were not refused");
    }
  }
  count_work(state, state.range(0), front);
}
BENCHMARK(reject_overlapping)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
