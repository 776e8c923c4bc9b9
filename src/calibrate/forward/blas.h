#pragma once

#include <cstdint>
#include <string>

#include <ballast/error.h>

namespace ballast {

// Matrix products in F32, by OpenBLAS. The library is loaded when it is first needed. Results may differ in the last digits
// between processors and versions. All calls are thread-safe and run in the calling thread.
class Blas {
 public:
  // Loads the library once for the process: the system's, or that of the Python package scipy-openblas32, if that is where the
  // run path of this code leads. `kUnsupported`, with what to install.
  static Result<const Blas*> load();
  static Result<Blas> load_from(const std::string& file);

  // Rows and columns of matrices that are stored by rows; a stride is the distance from one row to the next.
  struct Left {
    const float* values;
    std::uint64_t stride;
  };

  // out[m, n] = factor · left[m, k] · right[n, k]ᵀ
  void multiply_transposed(std::uint64_t m, std::uint64_t n, std::uint64_t k, Left left, Left right, float factor, float* out,
                           std::uint64_t out_stride) const;
  // out[m, n] = left[m, k] · right[k, n]
  void multiply(std::uint64_t m, std::uint64_t n, std::uint64_t k, Left left, Left right, float* out,
                std::uint64_t out_stride) const;
  // out[columns, columns] += xᵀ · x for x[rows, columns], in the rows [first, first + count) of `out`, on the diagonal and below.
  // Some values above the diagonal are added to as well.
  void add_products_below(std::uint64_t rows, std::uint64_t columns, std::uint64_t first, std::uint64_t count, const float* x,
                          float* out) const;

  // Runs every product in the thread that calls it, as long as it lives: Ballast divides the work itself.
  class OneThread {
   public:
    explicit OneThread(const Blas& blas);
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;
    ~OneThread();

   private:
    const Blas& blas_;
    int before_;
  };

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc);
  Sgemm sgemm_ = nullptr;
  int (*get_threads_)() = nullptr;
  void (*set_threads_)(int) = nullptr;
};

}  // namespace ballast
