#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/slice.h>
#include <ballast/work.h>

namespace ballast {

using WriteBytes = std::function<Result<void>(std::span<const std::byte>)>;

// Writes a tensor, or a slice of it as in Model::slice(), in .npy format, a few megabytes at a time. NumPy has no BF16, F8 or F4,
// so these are converted to F32 without loss. Returns the dtype written.
Result<DType> write_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const WriteBytes& write,
                        const WorkOptions& work = {});

struct SaveNpyOptions {
  bool force = false;  // replace a file that is not a .npy file
  WorkOptions work;
};

// Writes the same bytes to a file, which appears under its name once it is complete. Without `force`, replaces only empty and
// .npy files.
Result<DType> save_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const std::string& path,
                       const SaveNpyOptions& options = {});

}  // namespace ballast
