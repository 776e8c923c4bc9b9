#include <ballast/model.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;
using test::safetensors;
using test::TempDir;
using test::to_text;
using test::WithoutPrivilege;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

template <class T>
concept ViewsFromATemporary = requires(T&& model) { std::forward<T>(model).view(""); };
static_assert(ViewsFromATemporary<const Model&>);
static_assert(!ViewsFromATemporary<Model>);

// 'm' is F32 [2, 3] with the values 1 to 6, 'b' is U8 [4] with "abcd".
std::string two_tensors() {
  return safetensors(R"({"__metadata__":{"format":"pt"},"m":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                     R"("b":{"dtype":"U8","shape":[4],"data_offsets":[24,28]}}  )",
                     raw({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}) + "abcd");
}

TEST(Model, IsMadeOfTensorsInMemory) {
  const std::string numbers = raw({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
  const std::vector<std::uint64_t> matrix{2, 3};
  const std::vector<std::uint64_t> vector{4};
  const std::vector<std::uint64_t> none{0};
  const std::vector<TensorView> tensors{{.name = "b", .dtype = DType::kU8, .shape = vector, .bytes = as_bytes("abcd")},
                                        {.name = "e", .dtype = DType::kF32, .shape = none, .bytes = {}},
                                        {.name = "m", .dtype = DType::kF32, .shape = matrix, .bytes = as_bytes(numbers)}};
  const auto model = Model::from_tensors(tensors, "held", {{"format", "pt"}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->tensors().size(), 3);
  EXPECT_THAT(model->metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(to_text(model->read("b")->bytes()), "abcd");
  EXPECT_EQ(to_text(model->read("m")->bytes()), numbers);
  EXPECT_TRUE(model->read("e")->bytes().empty());
  EXPECT_FALSE(model->view("m"));
  std::vector<TensorView> wrong = tensors;
  wrong[2].bytes = wrong[2].bytes.first(20);
  EXPECT_TRUE(
      fails(Model::from_tensors(wrong, "held"), Errc::kInvalidArgument, "held: tensor 'm': F32 [2, 3] needs 24 bytes, got 20"));
  wrong = tensors;
  wrong[1].name = "b";
  const auto twice = Model::from_tensors(wrong, "held");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Errc::kInvalidArgument);
}

TEST(Model, DescribesAFile) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", two_tensors());
  const auto model = Model::open(path);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->path(), path);
  EXPECT_EQ(model->file_size(), two_tensors().size());
  EXPECT_EQ(model->parameter_count(), 10);
  EXPECT_EQ(model->data_bytes(), 28);
  EXPECT_THAT(model->metadata(), ElementsAre(Pair("format", "pt")));
  EXPECT_EQ(model->config().has_value(), false);
  EXPECT_THAT(model->warnings(), IsEmpty());
  EXPECT_EQ(model->modality(), Modality::kUnknown);
  ASSERT_EQ(model->files().size(), 1);
  EXPECT_EQ(model->files()[0].path, path);
  EXPECT_EQ(model->files()[0].data_start, two_tensors().size() - 28);
  ASSERT_EQ(model->tensors().size(), 2);
  EXPECT_EQ(model->tensors()[0].name, "m");
  EXPECT_EQ(model->tensors()[1].name, "b");
  EXPECT_TRUE(model->has("b"));
  EXPECT_FALSE(model->has("c"));
  EXPECT_EQ(model->find("b"), &model->tensors()[1]);
}

TEST(Model, ViewsReadsAndSlicesAgree) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", two_tensors());
  for (const Access access : {Access::kAuto, Access::kMmap}) {
    const auto model = Model::open(path, {.access = access});
    ASSERT_TRUE(model) << model.error().message;
    const auto view = model->view("m");
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->name, "m");
    EXPECT_EQ(view->dtype, DType::kF32);
    EXPECT_THAT(view->shape, ElementsAre(2, 3));
    EXPECT_THAT(*view->as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
    const auto copy = model->read("m");
    ASSERT_TRUE(copy) << copy.error().message;
    EXPECT_EQ(copy->name(), "m");
    EXPECT_THAT(copy->shape(), ElementsAre(2, 3));
    EXPECT_THAT(*copy->view().as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
    const auto slice = model->slice("m", std::array{Slice{.start = 1}, Slice{.step = -2}});
    ASSERT_TRUE(slice) << slice.error().message;
    EXPECT_THAT(slice->shape(), ElementsAre(1, 2));
    EXPECT_THAT(*slice->view().as<float>(), ElementsAre(6, 4));
    EXPECT_TRUE(model->release("m"));
    EXPECT_THAT(*view->as<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(Model, SpecialFloatsKeepTheirBits) {
  const std::string data("\x01\0\xc0\x7f\0\0\x80\xff\0\0\0\x80\x01\0\0\0", 16);
  const std::string file = safetensors(R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", data);
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_text(model->view("t")->bytes), data);
  EXPECT_EQ(to_text(model->read("t")->bytes()), data);
  EXPECT_EQ(to_text(model->slice("t", std::array{Slice{.stop = 1}})->bytes()), data.substr(0, 4));
}

TEST(Model, EveryDtypeIsReadAndViewed) {
  for (const DTypeInfo& dtype : kDTypes) {
    const std::string data = std::string("0123456789abcdef").append(dtype.bits == 6 ? 8 : 0, 'x');
    const std::size_t count = data.size() * 8 / dtype.bits;
    const std::string file = safetensors(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", dtype.name, count, data.size()), data);
    const auto model = Model::from_bytes(as_bytes(file));
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(to_text(model->view("t")->bytes), data) << dtype.name;
    EXPECT_EQ(to_text(model->read("t")->bytes()), data) << dtype.name;
    EXPECT_EQ(model->parameter_count(), count);
  }
}

TEST(Model, EmptyTensorsAndScalarsAreReadAndViewed) {
  const std::string file =
      safetensors(R"({"e":{"dtype":"F32","shape":[2,0,9223372036854775808],"data_offsets":[0,0]},)"
                  R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}})",
                  raw({2.5F}));
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->view("e")->bytes.empty());
  EXPECT_THAT(model->read("e")->shape(), ElementsAre(2, 0, std::uint64_t{1} << 63));
  EXPECT_TRUE(model->view("z")->bytes.empty());
  EXPECT_THAT(model->read("s")->shape(), IsEmpty());
  EXPECT_THAT(*model->read("s")->view().as<float>(), ElementsAre(2.5F));
  EXPECT_EQ(model->parameter_count(), 1);
}

TEST(Model, ReadIntoCopiesAPart) {
  const std::string file = two_tensors();
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model) << model.error().message;
  std::string out(2, '\0');
  const auto space = std::as_writable_bytes(std::span(out));
  ASSERT_TRUE(model->read_into("b", 1, space));
  EXPECT_EQ(out, "bc");
  EXPECT_TRUE(fails(model->read_into("b", 3, space), Errc::kInvalidArgument,
                    "<memory>: tensor 'b': cannot read 2 bytes at offset 3: the tensor has 4 bytes"));
  EXPECT_TRUE(fails(model->read_into("b", UINT64_MAX, space), Errc::kInvalidArgument,
                    "<memory>: tensor 'b': cannot read 2 bytes at offset 18446744073709551615: the tensor has 4 bytes"));
}

TEST(Model, MissingTensorsAreNotFound) {
  const std::string file = two_tensors();
  const auto model = Model::from_bytes(as_bytes(file), "held\n");
  ASSERT_TRUE(model) << model.error().message;
  constexpr std::string_view kMessage = R"(held\n: no tensor '\x1b\'' among 2)";
  EXPECT_TRUE(fails(model->view("\x1b'"), Errc::kNotFound, kMessage));
  EXPECT_TRUE(fails(model->read("\x1b'"), Errc::kNotFound, kMessage));
  EXPECT_TRUE(fails(model->read_into("\x1b'", 0, {}), Errc::kNotFound, kMessage));
  EXPECT_TRUE(fails(model->slice("\x1b'", {}), Errc::kNotFound, kMessage));
  EXPECT_TRUE(fails(model->release("\x1b'"), Errc::kNotFound, kMessage));
  EXPECT_TRUE(fails(model->writable_view("\x1b'"), Errc::kNotFound, kMessage));
}

TEST(Model, MissingTensorsAreToldFromSimilarOnes) {
  const std::string file = safetensors(R"({"norm.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "abcd");
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->view("norm.wieght"), Errc::kNotFound,
                    "<memory>: no tensor 'norm.wieght' among 1; did you mean 'norm.weight'?"));
}

TEST(Model, WritableViewsDoNotChangeTheFile) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", two_tensors());
  const auto model = Model::open(path, {.access = Access::kMmap});
  ASSERT_TRUE(model) << model.error().message;
  const auto view = model->view("b");
  ASSERT_TRUE(view) << view.error().message;
  const auto writable = model->writable_view("b");
  ASSERT_TRUE(writable) << writable.error().message;
  EXPECT_EQ(writable->data(), view->bytes.data());
  writable->front() = std::byte{'x'};
  EXPECT_EQ(to_text(view->bytes), "xbcd");
  EXPECT_EQ(to_text(model->read("b")->bytes()), "abcd");
}

TEST(Model, MemoryAndFilesThatAreNotMappedHaveNoWritableViews) {
  const std::string file = two_tensors();
  const auto held = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(held) << held.error().message;
  EXPECT_TRUE(fails(held->writable_view("b"), Errc::kUnsupported,
                    "<memory>: tensor 'b': not a mapped file, so there are no writable views"));
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", file);
  const auto model = Model::open(path, {.access = Access::kPread});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->writable_view("b"), Errc::kUnsupported,
                    path + ": tensor 'b': view() is not available because the file is not memory-mapped (pread access or a "
                           "network filesystem); use read()"));
}

TEST(Model, SliceErrorsNameFileAndTensor) {
  const std::string file = two_tensors();
  const auto model = Model::from_bytes(as_bytes(file));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->slice("b", std::array{Slice{}, Slice{}}), Errc::kInvalidArgument,
                    "<memory>: tensor 'b': 2 slices, but shape [4] has 1 dimension"));
}

TEST(Model, PreadAccessHasNoViews) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", two_tensors());
  const auto model = Model::open(path, {.access = Access::kPread});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(fails(model->view("b"), Errc::kUnsupported,
                    path + ": tensor 'b': view() is not available because the file is not memory-mapped (pread access or a "
                           "network filesystem); use read()"));
  EXPECT_EQ(to_text(model->read("b")->bytes()), "abcd");
  EXPECT_TRUE(model->release("b"));
}

TEST(Model, TruncationWhileOpenIsAnErrorAndNotASignal) {
  const TempDir dir;
  const std::string file =
      safetensors(R"({"t":{"dtype":"U8","shape":[1000,1000],"data_offsets":[0,1000000]}})", std::string(1'000'000, 'x'));
  const std::string path = dir.write("x.safetensors", file);
  const auto model = Model::open(path);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->view("t"));
  std::filesystem::resize_file(path, 1000);
  const std::string message =
      fmt::format("{}: tensor 't': file was truncated while open: it has 1000 bytes, it had {}", path, file.size());
  EXPECT_TRUE(fails(model->read("t"), Errc::kIo, message));
  EXPECT_TRUE(fails(model->slice("t", std::array{Slice{.start = 500}, Slice{.step = 7}}), Errc::kIo, message));
  EXPECT_TRUE(fails(model->view("t"), Errc::kIo, message));
  std::byte last{};
  EXPECT_TRUE(fails(model->read_into("t", 999'999, {&last, 1}), Errc::kIo, message));
}

TEST(Model, ErrorsFromOpenContainThePath) {
  const TempDir dir;
  EXPECT_TRUE(
      fails(Model::open(dir.path("x\n")), Errc::kNotFound, dir.path("x\\n") + ": cannot open: No such file or directory"));
  ASSERT_EQ(::mkfifo(dir.path("fifo").c_str(), 0644), 0);
  EXPECT_TRUE(fails(Model::open(dir.path("fifo")), Errc::kIo, dir.path("fifo") + ": not a regular file"));
  const std::string path = dir.write("page", "<!DOCTYPE html><html></html>");
  EXPECT_TRUE(fails(Model::open(path), Errc::kCorrupt,
                    path + ": not a SafeTensors file; this looks like an HTML "
                           "page, perhaps a server's error message: download the file again"));
}

TEST(Model, UnreadableFileIsNotReportedAsMissing) {
  const TempDir dir;
  const std::string path = dir.write("x.safetensors", two_tensors());
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const WithoutPrivilege unprivileged;
  if (!unprivileged.effective()) GTEST_SKIP() << "running as root, which can read every file, and cannot switch to another user";
  EXPECT_TRUE(fails(Model::open(path), Errc::kIo, path + ": cannot open: Permission denied"));
}

TEST(Model, OptionsReachTheParser) {
  const std::string file = safetensors(R"({"a":["U8",[1],[0,1]]})", "x");
  EXPECT_TRUE(fails(Model::from_bytes(as_bytes(file)), Errc::kCorrupt,
                    "<memory>: tensor 'a': invalid JSON in header: expected '{' at byte 13 of 30"));
  EXPECT_TRUE(Model::from_bytes(as_bytes(file), "x", {.strictness = Strictness::kReference}));
  EXPECT_TRUE(fails(Model::from_bytes(as_bytes(file), "x", {.max_header_bytes = 3}), Errc::kCorrupt,
                    "x: header of 22 bytes exceeds the limit of 3 bytes; raise max_header_bytes if you trust the file"));
}

TEST(Model, ViewsStayValidWhenTheModelMoves) {
  const TempDir dir;
  auto opened = Model::open(dir.write("x.safetensors", two_tensors()));
  ASSERT_TRUE(opened) << opened.error().message;
  const auto view = opened->view("b");
  ASSERT_TRUE(view) << view.error().message;
  const Model moved = std::move(*opened);
  EXPECT_EQ(to_text(view->bytes), "abcd");
  EXPECT_EQ(view->name, "b");
  EXPECT_EQ(moved.tensors().size(), 2);
}

// For the thread sanitizer.
TEST(Model, IsThreadSafe) {
  constexpr std::size_t kTensors = 8;
  constexpr std::size_t kBytes = 10'000;
  std::string header;
  std::string data;
  for (std::size_t i = 0; i < kTensors; ++i) {
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[100,100],"data_offsets":[{},{}]}})", i == 0 ? "{" : ",", i,
                          i * kBytes, (i + 1) * kBytes);
    data += std::string(kBytes, static_cast<char>('a' + i));
  }
  const TempDir dir;
  const auto model = Model::open(dir.write("x.safetensors", safetensors(header + "}", data)), {.access = Access::kMmap});
  ASSERT_TRUE(model) << model.error().message;

  std::atomic<int> wrong = 0;
  const auto work = [&](std::size_t thread) {
    for (std::size_t round = 0; round < 100; ++round) {
      const std::size_t i = (thread + round) % kTensors;
      const std::string name = fmt::format("t{}", i);
      const auto is_right = [&](std::span<const std::byte> bytes, std::size_t size) {
        return bytes.size() == size && std::ranges::all_of(bytes, [&](std::byte b) { return b == std::byte('a' + i); });
      };
      const auto view = model->view(name);
      const auto copy = model->read(name);
      const auto slice = model->slice(name, std::array{Slice{.step = -3}, Slice{.start = 10, .stop = 20}});
      const auto released = model->release(name);
      const bool right = view && copy && slice && released && is_right(view->bytes, kBytes) && is_right(copy->bytes(), kBytes) &&
                         is_right(slice->bytes(), 34 * 10) && model->has(name) && model->modality() == Modality::kUnknown;
      if (!right) ++wrong;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 8; ++thread) threads.emplace_back(work, thread);
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ballast
