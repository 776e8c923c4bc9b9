#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ballast/progress.h>

#include "quantize/quality.h"
#include "scheme/writer.h"

namespace ballast {

// A block on its way, for a thread to fill again and again.
struct CodedBuffers {
  std::vector<std::byte> in;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<float> offsets;
  std::vector<float> time_bias;

  CodedRows rows(const RowFormat& format, std::uint64_t count);
  CodedRows filled() { return {.packed = packed, .scales = scales, .offsets = offsets}; }
};

// Reads blocks of a model and quantizes them as the work says, with what is known of their inputs. Thread-safe.
class LayerCoder {
 public:
  LayerCoder(const QuantizeWork& work, const Progress& progress) : work_(work), progress_(progress) {}

  Result<void> read(const TensorBlock& block, std::vector<std::byte>& into) const;
  Result<QualitySums> code(const TensorBlock& block, CodedBuffers& buffers) const;
  Result<std::shared_ptr<const LayerInputs>> inputs(std::size_t tensor) const;
  // What is written of rows that are coded, with what they have for groups of timesteps.
  Result<CodedBlock> finish(std::size_t tensor, CodedBuffers& buffers) const;

  // Rows from all over the tensor, for the two that follow.
  struct SampleRows {
    std::uint64_t most;
    std::uint64_t in_a_run;  // a server is asked once for each
  };
  Result<void> read_sample(std::size_t tensor, const SampleRows& rows, CodedBuffers& buffers) const;
  // Of the rows in `buffers`, as a first guess. A cosine of -1 if something is wrong with them.
  Result<Quality> try_sample(std::size_t tensor, CodedBuffers& buffers) const;
  // The largest magnitude in each column.
  Result<std::vector<float>> largest(std::size_t tensor, const CodedBuffers& buffers) const;
  Result<Quality> measure(std::size_t tensor, unsigned threads) const;

  std::unexpected<Error> fail_tensor(std::size_t tensor, Errc code, const std::string& message) const;

 private:
  Result<QualitySums> code_rows(std::size_t tensor, std::uint64_t rows, CodedBuffers& buffers) const;
  Result<void> check(const TensorBlock& block, const QualitySums& sums, const CodedBuffers& buffers) const;

  const QuantizeWork& work_;
  const Progress& progress_;
};

}  // namespace ballast
