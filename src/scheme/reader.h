#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/model.h>
#include <ballast/progress.h>
#include <ballast/quantize_config.h>

#include "quantize/rows.h"
#include "scheme/time_aware_table.h"

namespace ballast {

// One tensor of a quantized model.
struct QuantizedTensor {
  std::string name;                  // that it had before
  DType dtype = DType::kF32;         // that it had before, as far as that is known
  std::vector<std::uint64_t> shape;  // that it had before
  std::uint64_t bytes = 0;           // of codes and parameters, or of the values if they were kept
  std::uint64_t rows = 0;
  RowFormat format;  // of a row; `bits` is 0 if the tensor was kept
  std::string file;  // where it is, or begins

  bool is_quantized() const { return format.bits != 0; }
};

// The SHA-256 of a file.
struct FileSum {
  std::string path;
  std::string found;
  std::string expected;  // by the metadata of the model

  bool agrees() const { return found == expected; }
  std::string difference() const;
};

// A quantized model in either format, to be read in pieces. All sizes are known to agree. Thread-safe.
class QuantizedSource {
 public:
  QuantizedSource() = default;
  QuantizedSource(const QuantizedSource&) = delete;
  QuantizedSource& operator=(const QuantizedSource&) = delete;
  virtual ~QuantizedSource() = default;

  virtual QuantizeFormat format() const = 0;
  virtual const std::string& directory() const = 0;
  virtual std::span<const QuantizedTensor> tensors() const = 0;  // in the order of the files
  virtual std::uint64_t file_size() const = 0;                   // of the files of weights
  virtual std::vector<std::string> files() const = 0;
  virtual std::string modality() const = 0;  // as the files tell, or nothing
  virtual std::string config() const = 0;    // of the model, as JSON, or nothing

  const QuantizedTensor* find(std::string_view name) const;

  // Says that all tensors will be read next, in their order; see Source::expect().
  virtual void expect_all() const = 0;

  // The timesteps at which groups begin, without the first group; nothing if layers have no parameters for these.
  virtual Result<std::optional<std::vector<double>>> time_boundaries() const = 0;
  // What the layers have for groups of timesteps, if anything.
  virtual Result<std::optional<TimeAwareTable>> read_time_aware() const = 0;

  // The sums of files(), where there are some to compare them with.
  virtual Result<std::vector<FileSum>> hash_files(const Progress& progress = {}) const;

  // Codes and parameters of as many rows as `out` has room for.
  virtual Result<void> read_rows(std::string_view name, std::uint64_t first, const CodedRows& out) const = 0;
  // The numbers that `count` rows stand for, as F64, F32, F16 or BF16; `out` has exactly their size.
  virtual Result<void> dequantize(std::string_view name, std::uint64_t first, std::uint64_t count, DType dtype,
                                  std::span<std::byte> out) const = 0;
  // Bytes of a tensor that was kept.
  virtual Result<void> read_kept(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const = 0;

 protected:
  void index_tensors();  // due once tensors() is what it will be

 private:
  std::map<std::string_view, const QuantizedTensor*> index_;
};

Result<std::unique_ptr<QuantizedSource>> open_quantized(const std::string& path);
Result<std::unique_ptr<QuantizedSource>> open_mlx_quantized(const std::string& path);
Result<std::unique_ptr<QuantizedSource>> open_parquet_quantized(const std::string& path);

}  // namespace ballast
