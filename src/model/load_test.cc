#include <ballast/load.h>

#include <filesystem>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include <ballast/model.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;
using test::safetensors;
using test::TempDir;
using test::to_text;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class T>
concept ViewsFromATemporary = requires(T&& model) { std::forward<T>(model).view(""); };
static_assert(ViewsFromATemporary<const LoadedModel&>);
static_assert(!ViewsFromATemporary<LoadedModel>);
static_assert(!std::is_copy_constructible_v<LoadedModel>);

std::string random_bytes(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes((count + 7) / 8 * 8, '\0');
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, sizeof(word));
  }
  bytes.resize(count);
  return bytes;
}

// A U8 tensor `name`. `padding` spaces in the header shift the start of the data.
std::string one_tensor(std::string_view name, std::string_view data, std::size_t padding = 0) {
  return safetensors(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}}{})", name, data.size(),
                                 data.size(), std::string(padding, ' ')),
                     data);
}

// The padding with which the data of one_tensor() starts at a multiple of eight.
std::size_t aligning(std::string_view name, std::size_t bytes) {
  return (8 - (one_tensor(name, std::string(bytes, 'x')).size() - bytes) % 8) % 8;
}

// Counts allocations and frees, and can fail on request.
class CountingAllocator final : public Allocator {
 public:
  enum class Fault { kNone, kNull, kMisaligned };
  explicit CountingAllocator(Fault fault = Fault::kNone) : fault_(fault) {}

  std::byte* allocate(std::size_t size) override {
    ++allocations;
    if (fault_ == Fault::kNull) return nullptr;
    std::byte* const bytes = host_allocator().allocate(size + kShift);
    live.emplace(bytes + shift(), size);
    return bytes + shift();
  }
  void free(std::byte* bytes, std::size_t size) override {
    EXPECT_EQ(live.erase({bytes, size}), 1);
    host_allocator().free(bytes - shift(), size + kShift);
  }

  int allocations = 0;
  std::set<std::pair<std::byte*, std::size_t>> live;

 private:
  static constexpr std::size_t kShift = 64;
  std::size_t shift() const { return fault_ == Fault::kMisaligned ? kShift : 0; }
  Fault fault_;
};

// Expects everything in `loaded` to equal what `model` reads tensor by tensor.
void expect_same(const Model& model, const LoadedModel& loaded) {
  ASSERT_EQ(loaded.tensors().size(), model.tensors().size());
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    const TensorInfo& info = model.tensors()[i];
    const TensorView& view = loaded.tensors()[i];
    EXPECT_EQ(view.name, info.name);
    EXPECT_EQ(view.dtype, info.dtype);
    EXPECT_TRUE(std::ranges::equal(view.shape, info.shape));
    const auto read = model.read(info.name);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(std::ranges::equal(view.bytes, read->bytes())) << info.name;
    EXPECT_EQ(loaded.find(info.name), &view);
  }
}

LoadedModel load(const Model& model, const LoadOptions& options = {}) {
  auto loaded = model.load_all(options);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return std::move(loaded).value();
}

Model open(const std::string& path) {
  auto model = Model::open(path);
  EXPECT_TRUE(model) << model.error().message;
  return std::move(model).value();
}

// Three shards: with more data than two blocks, less than a page, and none.
std::string write_shards(const TempDir& dir) {
  dir.write("model-00001-of-00003.safetensors", one_tensor("a", random_bytes(20'000'003, 1), aligning("a", 20'000'003)));
  dir.write("model-00002-of-00003.safetensors",
            safetensors(R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},"none":{"dtype":"F32","shape":[0,5],)"
                        R"("data_offsets":[8,8]},"c":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})",
                        raw({1.0F, 2.0F}) + "abc"));
  dir.write("model-00003-of-00003.safetensors", safetensors("{}"));
  return dir.path();
}

TEST(LoadAll, EqualsReadsWithAnyPathAndNumberOfThreads) {
  const TempDir dir;
  const Model model = open(write_shards(dir));
  for (const LoadPath path : {LoadPath::kAuto, LoadPath::kBuffered, LoadPath::kDirect}) {
    for (const unsigned threads : {0U, 1U, 2U, 8U}) expect_same(model, load(model, {.path = path, .work = {.threads = threads}}));
  }
}

TEST(LoadAll, MakesOneAllocationForAllFiles) {
  const TempDir dir;
  const Model model = open(write_shards(dir));
  CountingAllocator allocator;
  {
    const LoadedModel loaded = load(model, {.allocator = &allocator});
    expect_same(model, loaded);
    ASSERT_EQ(allocator.live.size(), 1);
    EXPECT_EQ(loaded.bytes(), allocator.live.begin()->second);
    EXPECT_GE(loaded.bytes(), model.data_bytes());
    EXPECT_LE(loaded.bytes(), model.data_bytes() + 3 * 4096);
    for (const TensorView& tensor : loaded.tensors()) {
      if (tensor.bytes.empty()) continue;
      EXPECT_GE(tensor.bytes.data(), allocator.live.begin()->first);
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), allocator.live.begin()->first + loaded.bytes());
    }
  }
  EXPECT_EQ(allocator.allocations, 1);
  EXPECT_THAT(allocator.live, IsEmpty());
}

TEST(LoadAll, OutlivesModelAndFiles) {
  auto dir = std::make_unique<TempDir>();
  auto model = std::make_unique<Model>(open(write_shards(*dir)));
  LoadedModel loaded = load(*model);
  model.reset();
  dir.reset();
  LoadedModel moved = std::move(loaded);
  ASSERT_EQ(moved.tensors().size(), 4);
  const auto b = moved.view("b");
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ(b->name, "b");
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  EXPECT_THAT(*b->as<float>(), ElementsAre(1, 2));
  EXPECT_EQ(to_text(moved.find("a")->bytes), random_bytes(20'000'003, 1));
  EXPECT_EQ(moved.find("d"), nullptr);
}

TEST(LoadAll, UnknownNameIsNotFound) {
  const std::string file = test::safetensors_of({"a", "b"});
  const auto model = Model::from_bytes(as_bytes(file), "x\n");
  const LoadedModel loaded = load(*model);
  EXPECT_TRUE(fails(loaded.view("c"), Errc::kNotFound, "x\\n: no tensor 'c' among 2"));
}

TEST(LoadAll, ValuesAreAlignedForAnyHeaderLength) {
  const TempDir dir;
  for (std::size_t padding = 0; padding < 70; ++padding) {
    const std::string data = random_bytes(16'384, 1);
    const std::string file =
        safetensors(R"({"t":{"dtype":"F64","shape":[2048],"data_offsets":[0,16384]}})" + std::string(padding, ' '), data);
    const Model model = open(dir.write("x.safetensors", file));
    for (const LoadPath path : {LoadPath::kBuffered, LoadPath::kDirect}) {
      const LoadedModel loaded = load(model, {.path = path});
      const auto values = loaded.tensors()[0].as<double>();
      ASSERT_TRUE(values) << values.error().message;
      EXPECT_EQ(to_text(loaded.tensors()[0].bytes), data);
    }
  }
}

TEST(LoadAll, DirectPathFallsBackToBufferedReads) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const std::string folder = fmt::format("/dev/shm/ballast-test-{}", ::getpid());
  std::filesystem::create_directory(folder);
  const std::string data = random_bytes(9'000'000, 1);
  {
    std::ofstream out(folder + "/x.safetensors", std::ios::binary);
    out << one_tensor("a", data, aligning("a", data.size()));
  }
  const Model model = open(folder + "/x.safetensors");
  EXPECT_EQ(to_text(load(model, {.path = LoadPath::kDirect}).find("a")->bytes), data);
  std::filesystem::remove_all(folder);
}

TEST(LoadAll, ModelInMemoryIsCopied) {
  std::string file = one_tensor("a", "hello");
  const auto model = Model::from_bytes(as_bytes(file));
  for (const LoadPath path : {LoadPath::kAuto, LoadPath::kDirect}) {
    const LoadedModel loaded = load(*model, {.path = path});
    EXPECT_EQ(to_text(loaded.find("a")->bytes), "hello");
    EXPECT_NE(static_cast<const void*>(loaded.find("a")->bytes.data()), file.data() + file.size() - 5);
  }
}

TEST(LoadAll, ModelWithoutDataNeedsNoMemory) {
  for (const std::string& file : {safetensors("{}"), safetensors(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})")}) {
    const auto model = Model::from_bytes(as_bytes(file));
    ASSERT_TRUE(model) << model.error().message;
    CountingAllocator allocator;
    const LoadedModel loaded = load(*model, {.allocator = &allocator, .work = {.memory_limit = 1}});
    EXPECT_EQ(allocator.allocations, 0);
    EXPECT_EQ(loaded.bytes(), 0);
    expect_same(*model, loaded);
  }
}

TEST(LoadAll, FailedAllocationIsUnsupported) {
  const std::string file = one_tensor("a", "hello", aligning("a", 5));
  const auto model = Model::from_bytes(as_bytes(file), "m");
  CountingAllocator allocator(CountingAllocator::Fault::kNull);
  EXPECT_TRUE(fails(model->load_all({.allocator = &allocator}), Errc::kUnsupported,
                    fmt::format("m: cannot allocate {} bytes: out of memory", file.size())));
}

TEST(LoadAll, MisalignedMemoryIsAnInvalidArgument) {
  const std::string file = one_tensor("a", "hello");
  const auto model = Model::from_bytes(as_bytes(file), "m");
  CountingAllocator allocator(CountingAllocator::Fault::kMisaligned);
  EXPECT_TRUE(fails(model->load_all({.allocator = &allocator}), Errc::kInvalidArgument,
                    "m: the allocator returned memory 64 bytes past a multiple of 4096; it must be aligned"));
  EXPECT_THAT(allocator.live, IsEmpty());
}

TEST(LoadAll, RefusesToExceedTheMemoryLimit) {
  const std::string file = one_tensor("a", "hello", aligning("a", 5));
  const auto model = Model::from_bytes(as_bytes(file), "m");
  CountingAllocator allocator;
  EXPECT_TRUE(fails(model->load_all({.allocator = &allocator, .work = {.memory_limit = file.size() - 1}}), Errc::kInvalidArgument,
                    fmt::format("m: loading needs {} bytes, but the memory limit is {}", file.size(), file.size() - 1)));
  EXPECT_EQ(allocator.allocations, 0);
  EXPECT_TRUE(model->load_all({.work = {.memory_limit = file.size()}}));
}

TEST(LoadAll, ProgressCountsEveryByte) {
  const TempDir dir;
  const Model model = open(write_shards(dir));
  std::uint64_t last = 0;
  int calls = 0;
  const Progress progress = [&](std::uint64_t done, std::uint64_t total, std::string_view what) {
    EXPECT_EQ(total, model.data_bytes());
    EXPECT_GT(done, last);
    EXPECT_THAT(std::string(what), testing::HasSubstr("-of-00003.safetensors"));
    last = done;
    ++calls;
    return true;
  };
  load(model, {.work = {.progress = progress}});
  EXPECT_EQ(last, model.data_bytes());
  EXPECT_GE(calls, 4);
}

TEST(LoadAll, CancellingFreesTheMemory) {
  const TempDir dir;
  const Model model = open(write_shards(dir));
  CountingAllocator allocator;
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  EXPECT_TRUE(fails(model.load_all({.allocator = &allocator, .work = {.progress = stop}}), Errc::kCancelled, "cancelled"));
  EXPECT_EQ(allocator.allocations, 1);
  EXPECT_THAT(allocator.live, IsEmpty());
}

TEST(LoadAll, CallbackThatThrowsFreesTheMemory) {
  const auto file = one_tensor("a", "hello");
  const auto model = Model::from_bytes(as_bytes(file));
  CountingAllocator allocator;
  const Progress fault = [](std::uint64_t, std::uint64_t, std::string_view) -> bool { throw std::runtime_error("no"); };
  EXPECT_THROW((void)model->load_all({.allocator = &allocator, .work = {.progress = fault}}), std::runtime_error);
  EXPECT_THAT(allocator.live, IsEmpty());
}

TEST(LoadAll, TruncatedFileIsAnErrorWithItsNameAndBothSizes) {
  const TempDir dir;
  const std::string data = random_bytes(20'000'000, 1);
  const std::string file = one_tensor("a", data, aligning("a", data.size()));
  for (const LoadPath path : {LoadPath::kAuto, LoadPath::kBuffered, LoadPath::kDirect}) {
    for (const std::uint64_t size : {std::uint64_t{200}, std::uint64_t{8192}, std::uint64_t{19'000'001}}) {
      const std::string name = dir.write("x.safetensors", file);
      const Model model = open(name);
      std::filesystem::resize_file(name, size);
      CountingAllocator allocator;
      EXPECT_TRUE(fails(model.load_all({.allocator = &allocator, .path = path}), Errc::kIo,
                        fmt::format("{}: file was truncated while open: it has {} bytes, it had {}", name, size, file.size())));
      EXPECT_THAT(allocator.live, IsEmpty());
    }
  }
}

TEST(LoadAll, TruncationWhileLoadingIsAnError) {
  const TempDir dir;
  const std::string data = random_bytes(40'000'000, 1);
  const std::string file = one_tensor("a", data, aligning("a", data.size()));
  const std::string name = dir.write("x.safetensors", file);
  const Model model = open(name);
  const Progress cut = [&](std::uint64_t, std::uint64_t, std::string_view) {
    std::filesystem::resize_file(name, 1'000);
    return true;
  };
  EXPECT_TRUE(fails(model.load_all({.work = {.threads = 1, .progress = cut}}), Errc::kIo,
                    fmt::format("{}: file was truncated while open: it has 1000 bytes, it had {}", name, file.size())));
}

}  // namespace
}  // namespace ballast
