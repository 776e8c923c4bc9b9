#include "source/remote/curl.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

namespace ballast::remote {
namespace {

const std::string kAdvice = "; install libcurl 7.85 or later (Debian and Ubuntu: apt install libcurl4)";

TEST(Curl, MissingLibraryIsAnErrorThatNamesThePackage) {
  const auto curl = load_curl_from("libcurl_absent.so.4");
  ASSERT_FALSE(curl);
  EXPECT_EQ(curl.error(),
            "cannot load libcurl: libcurl_absent.so.4: cannot open shared object file: No such file or directory" + kAdvice);
}

TEST(Curl, AnotherLibraryIsRefused) {
  const auto curl = load_curl_from("libm.so.6");
  ASSERT_FALSE(curl);
  EXPECT_EQ(curl.error(), "cannot load libcurl: libm.so.6 has no function curl_version_info" + kAdvice);
}

TEST(Curl, OldLibraryIsRefused) {
  const std::string file = std::filesystem::read_symlink("/proc/self/exe").replace_filename("libold_curl.so");
  const auto curl = load_curl_from(file.c_str());
  ASSERT_FALSE(curl);
  EXPECT_EQ(curl.error(), "cannot load libcurl: " + file + " has version 7.81.0" + kAdvice);
}

TEST(Curl, InstalledLibraryIsLoadedOnce) {
  ASSERT_TRUE(load_curl()) << load_curl().error();
  EXPECT_EQ(&load_curl(), &load_curl());
}

}  // namespace
}  // namespace ballast::remote
