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
  std::string dtype;                 // of the source, as SafeTensors spells it
  std::string quant_type;            // none, int2 … int8
  std::vector<std::uint64_t> shape;  // of the whole tensor
  std::uint32_t block = 0;
  std::uint32_t block_count = 1;
  std::uint64_t row_offset = 0;
  std::uint64_t row_count = 0;
  std::uint64_t num_params = 0;  // in this block
  std::uint8_t bit_width = 0;    // of a value: that of the dtype when not quantized
  std::optional<std::uint64_t> quant_axis;
  std::optional<std::uint64_t> group_size;
  bool is_diffusion_model = false;
  std::optional<std::string> modality;
  std::optional<std::string> time_aware_quant_json;
  std::optional<std::string> spatial_quant_json;
  std::optional<std::string> activation_stats_json;
};

// Writes one Parquet file front to back. Blocks are gathered into row groups of a few megabytes.
class Writer {
 public:
  Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  virtual ~Writer() = default;

  // `data` are packed codes, or the source's bytes; scales and zero points are empty for the latter.
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

  // All rows of the file, but for what is read on its own below. Checked for their types and for nulls where there may be none,
  // not for what they say.
  virtual std::span<const Block> blocks() const = 0;
  virtual Result<Values> read(std::size_t block) const = 0;
  // Block::time_aware_quant_json, which blocks() leave out: it may be long.
  virtual Result<std::optional<std::string>> read_time_aware(std::size_t block) const = 0;
};

using Append = std::function<Result<void>(std::span<const std::byte>)>;

struct WriterOptions {
  bool compress_data = false;  // codes hardly ever get smaller
};

// What the library ballast_parquet gives: all that needs Arrow. Loaded on first use, so that nobody else pays for it.
struct Library {
  Result<std::unique_ptr<Writer>> (*create_writer)(Append append, const WriterOptions& options);
  Result<std::unique_ptr<Reader>> (*open_reader)(const Source& source);  // borrowed
};

// Loads it once; the error says where it was looked for and how to get it.
Result<const Library*> load_library();

}  // namespace ballast::parquet
