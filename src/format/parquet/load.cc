#include "format/parquet/load.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

#include <fmt/ranges.h>

#include "base/dl_error.h"
#include "base/fail.h"
#include "base/text.h"
#include "format/parquet/entry.h"

namespace ballast::parquet {
namespace {

namespace fs = std::filesystem;

// The shared library that holds this code; empty when it is part of the program.
fs::path own_file() {
  Dl_info info{};
  void* entry = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&load_library), &info, &entry, RTLD_DL_LINKMAP) == 0 || entry == nullptr) return {};
  return static_cast<const link_map*>(entry)->l_name;
}

bool is_bare(std::string_view place) { return !place.contains('/'); }

Result<const Library*> library_of(void* handle, const std::string& place) {
  const auto interface = reinterpret_cast<decltype(&ballast_parquet_interface)>(::dlsym(handle, "ballast_parquet_interface"));
  const auto library = reinterpret_cast<decltype(&ballast_parquet_library)>(::dlsym(handle, "ballast_parquet_library"));
  if (interface == nullptr || library == nullptr) return fail(Errc::kUnsupported, "{} is not Ballast's library", quote(place));
  if (std::string_view(interface()) != BALLAST_PARQUET_INTERFACE) {
    return fail(Errc::kUnsupported, "{} is of Ballast {}, this is {}; build and install them together", quote(place),
                escape(interface()), BALLAST_PARQUET_INTERFACE);
  }
  return library();
}

}  // namespace

std::vector<std::string> library_places() {
  std::vector<std::string> places;
  std::error_code error;
  for (const fs::path& file : {fs::canonical(own_file(), error), fs::read_symlink("/proc/self/exe", error)}) {
    if (file.empty()) continue;
    const fs::path folder = file.parent_path();
    for (const fs::path& place : {folder, folder.parent_path(), folder.parent_path() / BALLAST_LIBDIR}) {
      std::string path = place / kLibraryFile;
      if (std::ranges::find(places, path) == places.end()) places.push_back(std::move(path));
    }
  }
  places.emplace_back(kLibraryFile);
  return places;
}

Result<const Library*> load_library_from(std::span<const std::string> places) {
  std::vector<std::string> searched;
  for (const std::string& place : places) {
    std::error_code error;
    if (!is_bare(place) && !fs::exists(place, error)) {
      searched.push_back(escape(fs::path(place).parent_path().string()));
      continue;
    }
    // A library that is refused stays loaded: Arrow is not made to be unloaded.
    void* const handle = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return library_of(handle, place);
    std::string reason = last_dl_error();
    if (is_bare(place) && reason.starts_with(place + ": cannot open")) continue;
    return fail(Errc::kUnsupported,
                "cannot load Parquet support: {}; install Arrow's libraries in the library path or, for Python, pip install '{}'",
                reason, BALLAST_PYARROW);
  }
  return fail(Errc::kUnsupported,
              "Parquet support is not installed: {} is neither in {} nor in the system's library path; use Ballast's Python "
              "package, which includes it, or build Ballast where Arrow C++ or pyarrow is installed",
              kLibraryFile, fmt::join(searched, ", "));
}

Result<const Library*> load_library() {
  static const Result<const Library*> library = load_library_from(library_places());
  return library;
}

}  // namespace ballast::parquet
