#include "format/parquet/load.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/files.h"

namespace ballast::parquet {
namespace {

namespace fs = std::filesystem;
using test::fails;

fs::path program_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

TEST(ParquetLoad, LooksBesideTheProgramAboveItAndWhereLibrariesAreInstalled) {
  const std::vector<std::string> places = library_places();
  EXPECT_EQ(places.front(), (program_folder() / kLibraryFile).string());
  EXPECT_EQ(places[1], (program_folder().parent_path() / kLibraryFile).string());
  EXPECT_THAT(places[2], testing::MatchesRegex(program_folder().parent_path().string() + "/lib.*/libballast_parquet.so"));
  EXPECT_EQ(places.back(), kLibraryFile);
}

TEST(ParquetLoad, MissingLibrarySaysWhereItWasLookedForAndHowToGetIt) {
  const std::vector<std::string> places{"/nowhere/a.so", "/nowhere/at/all/b.so", "libballast_no_such_library.so"};
  EXPECT_TRUE(fails(load_library_from(places), Errc::kUnsupported,
                    "Parquet support is not installed: libballast_parquet.so is neither in /nowhere, /nowhere/at/all nor in the "
                    "system's library path; use Ballast's Python package, which includes it, or build Ballast where Arrow C++ or "
                    "pyarrow is installed"));
}

TEST(ParquetLoad, FileThatIsNoLibraryIsNamed) {
  const test::TempDir dir;
  const std::vector<std::string> places{dir.path("absent.so"), dir.write("text.so", "no library"), "/nowhere/a.so"};
  const auto library = load_library_from(places);
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, Errc::kUnsupported);
  EXPECT_THAT(library.error().message,
              testing::MatchesRegex("cannot load Parquet support: " + dir.path("text.so") +
                                    ": file too short; install Arrow's libraries in the library path or, for Python, pip install "
                                    "'pyarrow(==[0-9]+\\.\\*)?'"));
}

TEST(ParquetLoad, LibraryOfSomebodyElseIsRefused) {
  const std::vector<std::string> places{"libm.so.6"};
  EXPECT_TRUE(fails(load_library_from(places), Errc::kUnsupported, "'libm.so.6' is not Ballast's library"));
}

TEST(ParquetLoad, LibraryOfAnotherVersionIsRefused) {
  const std::vector<std::string> places{program_folder() / "libstale_parquet.so"};
  const auto library = load_library_from(places);
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, Errc::kUnsupported);
  EXPECT_THAT(
      library.error().message,
      testing::MatchesRegex("'" + places.front() +
                            "' is of Ballast 0.0.1-0123456789ab, this is [0-9.]+-[0-9a-f]+; build and install them together"));
}

}  // namespace
}  // namespace ballast::parquet
