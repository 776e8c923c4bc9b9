#include "source/path/hub_folder.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

class HubFolder : public testing::Test {
 protected:
  HubFolder() {
    dir_.write("hub/models--o--m/blobs/b1", "data");
    dir_.write("hub/models--o--m/snapshots/c1/config.json", "{}");
    std::filesystem::create_symlink("../../blobs/b1", dir_.path("hub/models--o--m/snapshots/c1/model.safetensors"));
  }
  test::TempDir dir_;
};

TEST_F(HubFolder, NamesTheOnlySnapshot) {
  const std::string snapshot = dir_.path("hub/models--o--m/snapshots/c1");
  const std::string text = "this is a folder of the Hugging Face cache; give the path of the model in it, ";
  EXPECT_EQ(describe_hub_folder(dir_.path("hub/models--o--m")), text + snapshot);
  EXPECT_EQ(describe_hub_folder(dir_.path("hub/models--o--m/snapshots")), text + std::filesystem::canonical(snapshot).string());
}

TEST_F(HubFolder, PrefersTheSnapshotOfTheMainBranch) {
  dir_.write("hub/models--o--m/snapshots/c0/config.json", "{}");
  EXPECT_EQ(describe_hub_folder(dir_.path("hub/models--o--m")),
            "this is a folder of the Hugging Face cache with 2 snapshots; give the path of one, such as " +
                dir_.path("hub/models--o--m/snapshots/c0"));
  dir_.write("hub/models--o--m/refs/main", "c1\n");
  EXPECT_EQ(describe_hub_folder(dir_.path("hub/models--o--m")),
            "this is a folder of the Hugging Face cache; give the path of the model in it, " +
                dir_.path("hub/models--o--m/snapshots/c1"));
}

TEST_F(HubFolder, ExplainsTheWholeCacheAndAnUnfinishedModel) {
  EXPECT_EQ(describe_hub_folder(dir_.path("hub")),
            "this is a Hugging Face cache of 1 models; give the path of one, such as " + dir_.path("hub/models--o--m"));
  std::filesystem::remove_all(dir_.path("hub/models--o--m/snapshots/c1"));
  EXPECT_EQ(describe_hub_folder(dir_.path("hub/models--o--m")),
            "this folder of the Hugging Face cache has no snapshot: the model is not downloaded; download it again");
}

TEST_F(HubFolder, OtherFoldersAreNotOfTheCache) {
  dir_.write("a/snapshots/x", "");
  for (const char* name : {"", "a", "a/snapshots", "none", "hub/models--o--m/snapshots/c1"}) {
    EXPECT_FALSE(describe_hub_folder(dir_.path(name))) << name;
  }
  EXPECT_FALSE(describe_hub_folder("hf://o/m"));
}

TEST_F(HubFolder, LinksToBlobsBelongToTheCache) {
  std::filesystem::create_symlink("hub/models--o--m/blobs/b1", dir_.path("link"));
  std::filesystem::create_symlink("hub/models--o--m/snapshots/c1", dir_.path("folder"));
  for (const char* name : {"link", "folder", "folder/model.safetensors", "folder/new", "hub/models--o--m/snapshots/c1",
                           "hub/models--o--m/snapshots/c1/model.safetensors", "hub/models--o--m/blobs/b1"}) {
    EXPECT_TRUE(is_hub_cached(dir_.path(name))) << name;
  }
  dir_.write("plain", "");
  dir_.write("other/blobs/b", "");
  for (const char* name : {"plain", "none", "hub", "other/blobs/b"}) {
    EXPECT_FALSE(is_hub_cached(dir_.path(name))) << name;
  }
}

}  // namespace
}  // namespace ballast
