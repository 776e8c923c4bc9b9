#include <ballast/edit_metadata.h>
#include <ballast/model.h>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::content;
using test::fails;

ino_t inode(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

constexpr std::string_view kTensor = R"("t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]})";

// Edits a file with this header and returns its new header; the data must stay what it was.
std::string edited(const std::string& header, const MetadataEdit& edit, MetadataChange expected) {
  const test::TempDir dir;
  const std::string path = dir.write("m.safetensors", test::safetensors(header, "abc"));
  const ino_t before = inode(path);
  const auto changed = edit_metadata(path, edit);
  if (!changed) return changed.error().message;
  EXPECT_EQ(*changed, expected);
  EXPECT_EQ(inode(path) == before, expected != MetadataChange::kRewritten);
  const auto model = Model::open(path);
  if (!model) return model.error().message;
  const std::string bytes = content(path);
  const std::uint64_t start = model->files()[0].data_start;
  EXPECT_EQ(bytes.substr(start), "abc");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), std::filesystem::directory_iterator()), 1);
  return bytes.substr(8, start - 8);
}

TEST(EditMetadata, FitsIntoThePadding) {
  const std::string header = fmt::format("{{{}}}{}", kTensor, std::string(40, ' '));
  const std::string text = fmt::format(R"({{"__metadata__":{{"k":"v"}},{}}})", kTensor);
  EXPECT_EQ(edited(header, {.set = {{"k", "v"}}}, MetadataChange::kInPlace),
            text + std::string(header.size() - text.size(), ' '));
}

TEST(EditMetadata, AShorterValueLeavesTheRestWhereItIs) {
  EXPECT_EQ(
      edited(fmt::format(R"({{"__metadata__":{{"k":"long"}},{}}})", kTensor), {.set = {{"k", "v"}}}, MetadataChange::kInPlace),
      fmt::format(R"({{"__metadata__":{{"k":"v"}}   ,{}}})", kTensor));
}

TEST(EditMetadata, LinksAreNotFollowed) {
  const test::TempDir dir;
  const std::string file = test::safetensors(fmt::format(R"({{"__metadata__":{{"k":"long"}},{}}})", kTensor), "abc");
  const std::string real = dir.write("real/m.safetensors", file);
  std::filesystem::create_symlink("real/m.safetensors", dir.path("link.safetensors"));
  EXPECT_TRUE(fails(edit_metadata(dir.path("link.safetensors"), {.set = {{"k", "v"}}}), Errc::kInvalidArgument,
                    dir.path("link.safetensors") + ": a symbolic link; give the path of the file itself, " +
                        std::filesystem::canonical(real).string()));
  const std::string blob = dir.write("models--o--m/blobs/b", file);
  const std::string snapshot = dir.path("models--o--m/snapshots/c");
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/b", snapshot + "/m.safetensors");
  EXPECT_TRUE(fails(edit_metadata(snapshot + "/m.safetensors", {.set = {{"k", "v"}}}), Errc::kWrite,
                    snapshot + "/m.safetensors: cannot write: it is in the Hugging Face cache, which other programs share; write "
                               "to another path"));
  EXPECT_EQ(content(real), file);
  EXPECT_EQ(content(blob), file);
}

TEST(EditMetadata, ALongerOneRewritesTheFile) {
  const std::string text = fmt::format(R"({{"__metadata__":{{"k":"longer"}},{}}})", kTensor);
  EXPECT_EQ(edited(fmt::format(R"({{"__metadata__":{{"k":"v"}},{}}})", kTensor), {.set = {{"k", "longer"}}},
                   MetadataChange::kRewritten),
            text + std::string((8 - text.size() % 8) % 8, ' '));
}

TEST(EditMetadata, UnsetsTheFirstTheLastAndTheOnlyEntry) {
  EXPECT_EQ(edited(fmt::format(R"({{"__metadata__":{{"k":"v"}}, {}}})", kTensor), {.unset = {"k"}}, MetadataChange::kInPlace),
            fmt::format(R"({{                          {}}})", kTensor));
  EXPECT_EQ(edited(fmt::format(R"({{{},"__metadata__":{{"k":"v"}}}})", kTensor), {.unset = {"k"}}, MetadataChange::kInPlace),
            fmt::format(R"({{{}                         }})", kTensor));
  const test::TempDir dir;
  const std::string path = dir.write("m.safetensors", test::safetensors(R"({"__metadata__":{"k":"v"}})"));
  ASSERT_TRUE(edit_metadata(path, {.unset = {"k"}}));
  EXPECT_TRUE(Model::open(path)->metadata().empty());
}

TEST(EditMetadata, FindsMetadataThatIsNullOrEscaped) {
  EXPECT_EQ(edited(fmt::format(R"({{"__metadata__" : null,{}}}            )", kTensor), {.set = {{"k", "v"}}},
                   MetadataChange::kInPlace),
            fmt::format(R"({{"__metadata__":{{"k":"v"}},{}}}         )", kTensor));
  EXPECT_EQ(
      edited(fmt::format(R"({{"\u005f_metadata__":{{"a":"b"}},{}}})", kTensor), {.set = {{"a", "c"}}}, MetadataChange::kInPlace),
      fmt::format(R"({{"__metadata__":{{"a":"c"}}     ,{}}})", kTensor));
}

TEST(EditMetadata, NeverOverwritesMoreThanAPage) {
  std::string header = R"({"__metadata__":{"a":"b"})";
  for (int i = 0; i < 200; ++i) header += fmt::format(R"(,"tensor{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i);
  header += fmt::format(",{}}}{}", kTensor, std::string(64, ' '));
  ASSERT_GT(header.size(), 8192U);
  edited(header, {.set = {{"a", "c"}}}, MetadataChange::kInPlace);
  edited(header, {.set = {{"a", "longer"}}}, MetadataChange::kRewritten);
}

TEST(EditMetadata, ChangesNothingIfEqual) {
  const std::string header = fmt::format(R"({{"__metadata__":{{"k":"v"}},{}}})", kTensor);
  EXPECT_EQ(edited(header, {.set = {{"k", "v"}}}, MetadataChange::kNone), header);
  EXPECT_EQ(edited(header, {.set = {{"k", "v"}}, .unset = {"k"}}, MetadataChange::kNone), header);
}

TEST(EditMetadata, RefusesWhatItCannotDo) {
  const test::TempDir dir;
  const std::string path = dir.write("m.safetensors", test::safetensors("{}"));
  EXPECT_TRUE(fails(edit_metadata(path, {.unset = {"k"}}), Errc::kInvalidArgument, path + ": no metadata key 'k' to unset"));
  EXPECT_TRUE(
      fails(edit_metadata(path, {.set = {{"k", "\xff"}}}), Errc::kInvalidArgument, path + ": metadata 'k': not valid UTF-8"));
  EXPECT_TRUE(fails(edit_metadata(path, {.set = {{"k", std::string(1000, 'x')}}}, {.max_header_bytes = 900}), Errc::kWrite,
                    path + ": the header would have 1032 bytes, readers accept 900"));
  dir.write("model/model.safetensors", test::safetensors("{}"));
  EXPECT_TRUE(fails(edit_metadata(dir.path("model"), {.set = {{"k", "v"}}}), Errc::kInvalidArgument,
                    dir.path("model") + ": can edit the metadata of a .safetensors file only, one at a time"));
}

}  // namespace
}  // namespace ballast
