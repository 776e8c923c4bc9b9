#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/model.h>
#include <ballast/weights.h>
#include <ballast/work.h>

#include "model/locate.h"
#include "quantize/rows.h"
#include "scheme/time_aware_table.h"

namespace ballast {

// The scheme of weights that are not quantized.
inline constexpr std::string_view kPlain = "plain";

// The SHA-256 of a file.
struct FileSum {
  std::string path;
  std::string found;
  std::string expected;  // by the metadata of the model

  bool agrees() const { return found == expected; }
  std::string difference() const;
};

// The logical weights of one model, to be read in pieces: one implementation for each scheme. All sizes are known to
// agree. Thread-safe.
class WeightsReader {
 public:
  WeightsReader() = default;
  WeightsReader(const WeightsReader&) = delete;
  WeightsReader& operator=(const WeightsReader&) = delete;
  virtual ~WeightsReader() = default;

  virtual std::string_view scheme() const = 0;
  virtual const std::string& path() const = 0;
  virtual const Folder* folder() const = 0;  // null for a single file
  virtual std::vector<ModelFile> files() const = 0;
  virtual Modality modality() const = 0;
  virtual const std::optional<ModelConfig>& config() const = 0;
  // What describes the model itself, such as its license, not how its files store it.
  virtual Metadata metadata() const = 0;
  virtual std::span<const std::string> warnings() const { return {}; }
  virtual const Model* stored() const { return nullptr; }
  // Moves stored() out; do not use the reader afterwards.
  virtual std::optional<Model> take_stored() { return std::nullopt; }
  // Whether the files record the original dtype and modality, or these are guesses.
  virtual bool knows_original() const = 0;

  std::span<const Weight> weights() const {
    std::call_once(listed_, [this] { list_weights(); });
    return weights_;
  }
  const Weight* find(std::string_view name) const;
  // The row format of a quantized weight.
  const RowFormat& format(const Weight& weight) const { return formats_[static_cast<std::size_t>(&weight - weights_.data())]; }
  std::uint64_t file_size() const;

  // Stored tensors that belong to the quantization, but not to the value of any weight.
  virtual std::span<const std::string> dropped() const { return {}; }
  // Describes scales, zero points and indices that no quantizer writes, one line each; reads them all.
  virtual Result<std::vector<std::string>> check_values() const { return std::vector<std::string>{}; }

  // Announces that all weights will be read next, in order; see Source::expect().
  virtual void expect_all() const = 0;

  virtual Result<std::optional<std::vector<double>>> time_boundaries() const = 0;
  virtual Result<std::optional<TimeAwareTable>> read_time_aware() const = 0;

  // The checksums of all files(), in order, or none if the metadata has none to compare with.
  virtual Result<std::vector<FileSum>> hash_files(const WorkOptions& work = {}) const;

  // Whether read_codes() works for the weight; if not, its values can be compared only after decoding.
  virtual bool has_codes(const Weight&) const { return true; }
  // Codes and parameters of as many rows as `out` has room for.
  virtual Result<void> read_codes(const Weight& weight, std::uint64_t first, const CodedRows& out) const = 0;
  // Whether the rows of a quantized weight are not contiguous in the file, so that many at a time are much cheaper than few.
  virtual bool is_transposed(const Weight&) const { return false; }
  // Decodes `count` rows of a quantized weight to F64, F32, F16 or BF16; `out` has exactly their size.
  virtual Result<void> read_rows(const Weight& weight, std::uint64_t first, std::uint64_t count, DType dtype,
                                 std::span<std::byte> out) const = 0;
  // Bytes of a weight that is not quantized.
  virtual Result<void> read_bytes(const Weight& weight, std::uint64_t offset, std::span<std::byte> out) const = 0;

 protected:
  // Adds a weight; find() knows it after index_weights(). `format.restore` must outlive the reader.
  void add(Weight weight, const RowFormat& format = {}) const;
  void index_weights() const;
  // Adds the weights on first use, for readers that list them lazily.
  virtual void list_weights() const {}

 private:
  mutable std::once_flag listed_;
  mutable std::vector<Weight> weights_;
  mutable std::vector<RowFormat> formats_;
  mutable std::map<std::string_view, const Weight*> index_;
};

// Whether a path leads to a folder of Parquet V2 Extended.
bool is_parquet_model(const Place& place);

// `given` is the path as the user gave it.
Result<std::unique_ptr<WeightsReader>> open_parquet_reader(const std::string& given, Folder folder, const OpenOptions& options);

const WeightsReader& reader_of(const Weights& weights);

// Without the entries that say how a file stores its tensors.
Metadata about_model(Metadata metadata);

}  // namespace ballast
