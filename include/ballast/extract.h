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

// Writes a tensor, or a part of one as Model::slice() takes it, as a .npy file, a few megabytes at a time. numpy knows no BF16,
// F8 and F4: they become F32, which holds all their values. Returns the dtype that was written.
Result<DType> write_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const WriteBytes& write,
                        const WorkOptions& work = {});

// The same to a file, which appears when it is whole.
Result<DType> save_npy(const Model& model, std::string_view name, std::span<const Slice> slices, const std::string& path,
                       const WorkOptions& work = {});

}  // namespace ballast
