#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ballast/error.h>

#include "source/source.h"

namespace ballast::parquet {

// One row of Parquet V2 Extended, without its data: a block of rows of one tensor. See docs/formats/parquet-v2-extended.md.
struct Block {
  std::string layer_name;
  std::string dtype;                 // original dtype, named as in SafeTensors
  std::string quant_type;            // none, int2 … int8
  std::vector<std::uint64_t> shape;  // of the whole tensor
  std::uint32_t block = 0;
  std::uint32_t block_count = 1;
  std::uint64_t row_offset = 0;
  std::uint64_t row_count = 0;
  std::uint64_t num_params = 0;  // in this block
  std::uint8_t bit_width = 0;    // bits per value; that of the dtype if not quantized
  std::optional<std::uint64_t> quant_axis;
  std::optional<std::uint64_t> group_size;
  bool is_diffusion_model = false;
  std::optional<std::string> modality;
  std::optional<std::string> time_aware_quant_json;
  std::optional<std::string> spatial_quant_json;
  std::optional<std::string> activation_stats_json;
};

// Writes one Parquet file sequentially. Blocks are collected into row groups of a few megabytes.
class Writer {
 public:
  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  virtual ~Writer() = default;

  // `data` are packed codes, or the original bytes if the tensor is not quantized; then scales and zero points are empty.
  virtual Result<void> append(const Block& block, std::span<const std::byte> data, std::span<const float> scales,
                              std::span<const float> zero_points) = 0;

  // Writes the footer.
  virtual Result<void> finish() = 0;
};

// Reads one Parquet file. Thread-safe.
class Reader {
 public:
  struct Values {
    std::vector<std::byte> data;
    std::vector<float> scales;
    std::vector<float> zero_points;
  };

  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  virtual ~Reader() = default;

  // All rows of the file, without their values and time_aware_quant_json. Types and forbidden nulls are checked, the content is
  // not.
  virtual std::span<const Block> blocks() const = 0;
  virtual Result<Values> read(std::size_t block) const = 0;
  // Block::time_aware_quant_json, which blocks() omits because it may be long.
  virtual Result<std::optional<std::string>> read_time_aware(std::size_t block) const = 0;
};

using Append = std::function<Result<void>(std::span<const std::byte>)>;

struct WriterOptions {
  bool compress_data = false;  // packed codes rarely compress
};

// The interface of libballast_parquet, which contains everything that needs Arrow. Loaded on first use.
struct Library {
  Result<std::unique_ptr<Writer>> (*create_writer)(Append append, const WriterOptions& options);
  Result<std::unique_ptr<Reader>> (*open_reader)(const Source& source);  // `source` must outlive the reader
};

// Loads the library once. The error says where it was searched and how to get it.
Result<const Library*> load_library();

}  // namespace ballast::parquet
