#include "output/occupied.h"

#include <array>

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace ballast {
namespace {

using test::fails;

class Occupied : public testing::Test {
 protected:
  Result<void> check(bool resume = false) const {
    const std::array<std::string, 3> names{"lora.safetensors", "config.json", "1_Pooling/config.json"};
    return check_free(dir_.path("out"), names, resume);
  }
  test::TempDir dir_;
};

TEST_F(Occupied, MissingAndEmptyDirectoriesAreFree) {
  EXPECT_TRUE(check());
  dir_.write("out/.cache/huggingface/x", "");
  dir_.write("out/.gitattributes", "");
  EXPECT_TRUE(check());
}

TEST_F(Occupied, AModelOfTheSameFilesIsReplaced) {
  for (const char* name : {"lora.safetensors", "config.json", "1_Pooling/config.json", "model-00001-of-00002.safetensors",
                           "model.safetensors.index.json", "quantization_config.json", "timeaware.safetensors"}) {
    dir_.write(std::string("out/") + name, "");
  }
  EXPECT_TRUE(check());
  dir_.write("out/1_Pooling/notes.txt", "");
  EXPECT_TRUE(fails(check(), Errc::kWrite,
                    dir_.path("out") + ": the directory is not empty: '1_Pooling/notes.txt' would stay beside the model; choose "
                                       "another directory, or allow it (force)"));
}

TEST_F(Occupied, AnAdapterIsReplacedOnlyByAnAdapter) {
  dir_.write("out/adapter_model.safetensors", "");
  EXPECT_TRUE(fails(check(), Errc::kWrite,
                    dir_.path("out") + ": the directory is not empty: 'adapter_model.safetensors' would stay beside the model; "
                                       "choose another directory, or allow it (force)"));
  EXPECT_TRUE(check_free(dir_.path("out"), std::array<std::string, 1>{"adapter_model-00001-of-00002.safetensors"}));
}

TEST_F(Occupied, OtherFilesAreCounted) {
  dir_.write("out/notes.txt", "");
  dir_.write("out/config.json", "");
  EXPECT_TRUE(fails(check(), Errc::kWrite,
                    dir_.path("out") + ": the directory is not empty: 'notes.txt' and 1 more files would stay beside the model; "
                                       "choose another directory, or allow it (force)"));
}

TEST_F(Occupied, TheConfigOfAnotherModelIsNotTakenOver) {
  dir_.write("out/model.safetensors", "");
  dir_.write("out/tokenizer.json", "");
  EXPECT_FALSE(check());
  EXPECT_FALSE(check_free(dir_.path("out"), {}));
}

TEST_F(Occupied, OnlyTheGivenFilesMayBeThere) {
  const auto check_only = [&] {
    const std::array<std::string, 2> names{"model.safetensors", "unet/config.json"};
    return ballast::check_only(dir_.path("out"), names);
  };
  EXPECT_TRUE(check_only());
  dir_.write("out/.cache/huggingface/x", "");
  dir_.write("out/unet/config.json", "");
  EXPECT_TRUE(check_only());
  dir_.write("out/weights.safetensors", "");
  dir_.write("out/unet/notes.txt", "");
  EXPECT_TRUE(fails(check_only(), Errc::kWrite,
                    dir_.path("out") + ": the directory is not empty: 'unet/notes.txt' and 1 more files would stay beside the "
                                       "model; choose another directory, or allow it (force)"));
}

TEST_F(Occupied, WorkThatWasInterruptedResumes) {
  dir_.write("out/notes.txt", "");
  dir_.write("out/.incomplete/journal", "");
  EXPECT_FALSE(check());
  EXPECT_TRUE(check(true));
  std::filesystem::remove_all(dir_.path("out/.incomplete"));
  EXPECT_FALSE(check(true));
  dir_.write("out.incomplete/journal", "");
  EXPECT_TRUE(check(true));
}

}  // namespace
}  // namespace ballast
