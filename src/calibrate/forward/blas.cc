#include "calibrate/forward/blas.h"

#include <dlfcn.h>

#include "base/dl_error.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

constexpr int kRowMajor = 101;
constexpr int kPlain = 111;
constexpr int kTransposed = 112;

int as_int(std::uint64_t size) { return static_cast<int>(size); }

}  // namespace

Result<Blas> Blas::load_from(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return fail(Errc::kUnsupported,
                "cannot load OpenBLAS, which multiplies the matrices: {}; install it (Debian and Ubuntu: apt "
                "install libopenblas0; pip install scipy-openblas32 for the Python package)",
                last_dl_error());
  }
  Blas blas;
  // The library in the Python package scipy-openblas32 has a prefix.
  for (const std::string prefix : {"", "scipy_"}) {
    blas.sgemm_ = reinterpret_cast<Sgemm>(::dlsym(library, (prefix + "cblas_sgemm").c_str()));
    blas.get_threads_ = reinterpret_cast<int (*)()>(::dlsym(library, (prefix + "openblas_get_num_threads").c_str()));
    blas.set_threads_ = reinterpret_cast<void (*)(int)>(::dlsym(library, (prefix + "openblas_set_num_threads").c_str()));
    if (blas.sgemm_ != nullptr && blas.get_threads_ != nullptr && blas.set_threads_ != nullptr) return blas;
  }
  return fail(Errc::kUnsupported, "{} is not OpenBLAS: it has no cblas_sgemm and openblas_set_num_threads", escape(file));
}

Result<const Blas*> Blas::load() {
  static const Result<Blas> blas = [] {
    auto of_system = load_from("libopenblas.so.0");
    if (of_system) return of_system;
    auto of_python = load_from("libscipy_openblas.so");
    return of_python ? of_python : of_system;
  }();
  if (!blas) return std::unexpected(blas.error());
  return &*blas;
}

void Blas::multiply_transposed(std::uint64_t m, std::uint64_t n, std::uint64_t k, Left left, Left right, float factor, float* out,
                               std::uint64_t out_stride) const {
  sgemm_(kRowMajor, kPlain, kTransposed, as_int(m), as_int(n), as_int(k), factor, left.values, as_int(left.stride), right.values,
         as_int(right.stride), 0.0F, out, as_int(out_stride));
}

void Blas::multiply(std::uint64_t m, std::uint64_t n, std::uint64_t k, Left left, Left right, float* out,
                    std::uint64_t out_stride) const {
  sgemm_(kRowMajor, kPlain, kPlain, as_int(m), as_int(n), as_int(k), 1.0F, left.values, as_int(left.stride), right.values,
         as_int(right.stride), 0.0F, out, as_int(out_stride));
}

void Blas::add_products_below(std::uint64_t rows, std::uint64_t columns, std::uint64_t first, std::uint64_t count, const float* x,
                              float* out) const {
  sgemm_(kRowMajor, kTransposed, kPlain, as_int(count), as_int(first + count), as_int(rows), 1.0F, x + first, as_int(columns), x,
         as_int(columns), 1.0F, out + first * columns, as_int(columns));
}

Blas::OneThread::OneThread(const Blas& blas) : blas_(blas), before_(blas.get_threads_()) { blas_.set_threads_(1); }
Blas::OneThread::~OneThread() { blas_.set_threads_(before_); }

}  // namespace ballast
