#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <system_error>

#include <ballast/config.h>
#include <ballast/convert.h>

#include "base/block_loop.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "format/parquet/parquet.h"
#include "model/read_config.h"
#include "quantize/column_scales.h"
#include "scheme/parquet/metadata.h"
#include "scheme/reader.h"
#include "scheme/time_aware_table.h"
#include "source/path/path.h"
#include "source/sha256.h"
#include "source/uri.h"

namespace ballast {
namespace {

// Where the rows of a block are stored.
struct BlockPlace {
  std::size_t part;
  std::size_t block;  // of the part
  std::uint64_t first_row;
  std::uint64_t rows;
};

struct OpenPart {
  std::string path;
  std::string sha256;  // expected
  std::unique_ptr<Source> source;
  std::unique_ptr<parquet::Reader> reader;
};

std::uint64_t row_count(const std::vector<std::uint64_t>& shape) { return shape.empty() ? 1 : shape.front(); }

// A weight and its row format.
struct Entry {
  Weight weight;
  RowFormat format;
};

// A tensor as its first block describes it, checked.
Result<Entry> describe(const parquet::Block& block) {
  const auto dtype = parse_dtype(block.dtype);
  if (!dtype) return fail(Errc::kUnsupported, "dtype is {}", quote(block.dtype));
  const auto elements = checked_elements(block.shape);
  const auto all_bits = elements ? checked_mul(*elements, bits(*dtype)) : std::nullopt;
  if (!all_bits) return fail(Errc::kCorrupt, "shape {} has more values than fit in 64 bits", to_string(block.shape));
  Entry entry{.weight = {.name = block.layer_name,
                         .dtype = *dtype,
                         .shape = block.shape,
                         .storage = {},
                         .tensors = {block.layer_name},
                         .rows = row_count(block.shape),
                         .file = {}},
              .format = {}};
  if (block.quant_type == "none") {
    entry.weight.bytes = *all_bits / 8;
    return entry;
  }
  constexpr unsigned kBits[] = {2, 3, 4, 5, 6, 8};
  constexpr std::uint64_t kGroups[] = {32, 64, 128, 256};
  const unsigned width = block.bit_width;
  if (std::ranges::find(kBits, width) == std::end(kBits) || block.quant_type != fmt::format("int{}", width)) {
    return fail(Errc::kCorrupt, "quant_type is {} with bit_width {}, an unknown combination", quote(block.quant_type), width);
  }
  const std::uint64_t group = block.group_size.value_or(0);
  if (std::ranges::find(kGroups, group) == std::end(kGroups)) {
    return fail(Errc::kCorrupt, "group_size is {}, expected 32, 64, 128 or 256", group);
  }
  if (block.quant_axis.value_or(0) != 1)
    return fail(Errc::kUnsupported, "quant_axis is {}, expected 1", block.quant_axis.value_or(0));
  if (info(*dtype).kind != NumberKind::kFloat || !can_convert(*dtype, DType::kF32)) {
    return fail(Errc::kCorrupt, "dtype is {}, which cannot be quantized", name(*dtype));
  }
  if (*elements == 0 || block.shape.size() < 2) {
    return fail(Errc::kCorrupt, "shape is {}, which cannot be quantized", to_string(block.shape));
  }
  if (!checked_mul(*elements, bits(DType::kF64))) {  // the widest dtype that it is decoded to
    return fail(Errc::kCorrupt, "shape {} has more values than fit in 64 bits", to_string(block.shape));
  }
  entry.weight.storage = {.scheme = "parquet", .mode = {}, .bits = width, .group_size = static_cast<unsigned>(group)};
  entry.format = {.columns = *elements / entry.weight.rows,
                  .bits = width,
                  .group_size = static_cast<unsigned>(group),
                  .affine = Affine::kScaleZero,
                  .parameters = DType::kBF16};
  entry.weight.bytes = entry.weight.rows * entry.format.stored_bytes();
  return entry;
}

class ParquetReader final : public WeightsReader {
 public:
  ParquetReader(std::string path, Folder folder, ReadOptions options)
      : path_(std::move(path)), folder_(std::move(folder)), options_(std::move(options)) {}

  Result<void> open() {
    const auto library = TRY(parquet::load_library());
    const std::string path = join_path(folder_.path(), kParquetMetadataFile);
    const auto text = read_text(path, options_);
    if (!text) return fail_at(shown(path), text.error());
    const auto metadata = parse_parquet_metadata(*text);
    if (!metadata) return fail_at(shown(path), metadata.error());
    for (const Modality known : {Modality::kText, Modality::kCode, Modality::kImage, Modality::kAudio}) {
      if (name(known) == metadata->modality) modality_ = known;
    }
    boundaries_ = metadata->time_boundaries;
    metadata_ = metadata->source;
    config_ = TRY(read_config(folder_));
    for (const ParquetMetadata::Part& part : metadata->parts) {
      TRY(open_part(*library, part));
    }
    TRY(check_blocks());
    if (metadata->tensor_count.value_or(weights().size()) != weights().size()) {
      return fail(Errc::kCorrupt, "{}: tensor_count is {}, the parts have {}", shown(path), *metadata->tensor_count,
                  weights().size());
    }
    return {};
  }

  std::string_view scheme() const override { return "parquet"; }
  const std::string& path() const override { return path_; }
  const Folder* folder() const override { return &folder_; }
  const std::optional<ModelConfig>& config() const override { return config_; }
  Metadata metadata() const override { return metadata_; }
  Modality modality() const override { return modality_; }
  bool knows_original() const override { return true; }
  std::vector<ModelFile> files() const override {
    std::vector<ModelFile> files;
    for (const OpenPart& part : parts_) files.push_back({.path = part.path, .size = part.source->size()});
    return files;
  }

  void expect_all() const override {
    for (const OpenPart& part : parts_) {
      const Extent all{.begin = 0, .end = part.source->size()};
      part.source->expect({&all, 1});
    }
  }

  Result<std::optional<std::vector<double>>> time_boundaries() const override { return boundaries_; }

  Result<std::optional<TimeAwareTable>> read_time_aware() const override {
    std::optional<TimeAwareTable> table;
    for (const Weight& tensor : weights()) {
      if (!tensor.is_quantized()) continue;
      for (const BlockPlace& place : places_.find(tensor.name)->second) {
        const OpenPart& part = parts_[place.part];
        auto text = part.reader->read_time_aware(place.block);
        if (!text) return fail_at(shown(part.path), std::move(text.error()));
        if (!*text) continue;
        if (!table) table.emplace();
        auto added = table->add_json(tensor.name, tensor.rows, place.first_row, place.rows, **text);
        if (added && boundaries_ && table->boundaries != *boundaries_) {
          added = fail(Errc::kCorrupt, "boundaries [{}], {} has [{}]", fmt::join(table->boundaries, ", "), kParquetMetadataFile,
                       fmt::join(*boundaries_, ", "));
        }
        if (!added) {
          const std::string where = fmt::format("tensor {}: time_aware_quant_json", quote(tensor.name));
          return fail_at(shown(part.path), std::move(added.error()).at(where));
        }
      }
    }
    if (!table && boundaries_) {
      return fail(Errc::kCorrupt, "{}/{}: has time_boundaries, but no tensor has time-aware parameters", shown(folder_.path()),
                  kParquetMetadataFile);
    }
    return table;
  }

  Result<std::vector<FileSum>> hash_files(const WorkOptions& work) const override {
    std::vector<FileSum> sums;
    std::uint64_t done = 0;
    for (const OpenPart& part : parts_) {
      auto sum = sha256(*part.source, [&](std::uint64_t bytes) {
        done += bytes;
        return report(work, done, file_size(), part.path);
      });
      if (!sum) return fail_at(shown(part.path), sum.error());
      sums.push_back({.path = part.path, .found = std::move(*sum), .expected = part.sha256});
    }
    return sums;
  }

  Result<void> read_codes(const Weight& weight, std::uint64_t first, const CodedRows& out) const override {
    const RowFormat& format = this->format(weight);
    const std::uint64_t count = out.packed.size() / format.packed_bytes();
    return for_each_part(
        weight, first, count, [&](const BlockPlace& place, std::uint64_t from, std::uint64_t rows) -> Result<void> {
          const auto values = TRY(read_block(place, format.packed_bytes() * place.rows, format.groups() * place.rows));
          const std::uint64_t skip = from - place.first_row;
          const std::uint64_t to = from - first;
          std::memcpy(out.packed.data() + to * format.packed_bytes(), values.data.data() + skip * format.packed_bytes(),
                      rows * format.packed_bytes());
          std::copy_n(values.scales.begin() + static_cast<std::ptrdiff_t>(skip * format.groups()), rows * format.groups(),
                      out.scales.begin() + static_cast<std::ptrdiff_t>(to * format.groups()));
          std::copy_n(values.zero_points.begin() + static_cast<std::ptrdiff_t>(skip * format.groups()), rows * format.groups(),
                      out.offsets.begin() + static_cast<std::ptrdiff_t>(to * format.groups()));
          return {};
        });
  }

  Result<void> read_rows(const Weight& weight, std::uint64_t first, std::uint64_t count, DType dtype,
                         std::span<std::byte> out) const override {
    const RowFormat& format = this->format(weight);
    std::vector<std::byte> packed(count * format.packed_bytes());
    std::vector<float> scales(count * format.groups());
    std::vector<float> offsets(count * format.groups());
    TRY(read_codes(weight, first, {.packed = packed, .scales = scales, .offsets = offsets}));
    std::vector<float> values(count * format.columns);
    dequantize_rows(format, packed, scales, offsets, values);
    TRY(convert_values(DType::kF32, std::as_bytes(std::span(values)), dtype, out));
    return {};
  }

  // Blocks of an unquantized weight are consecutive.
  Result<void> read_bytes(const Weight& weight, std::uint64_t offset, std::span<std::byte> out) const override {
    if (weight.is_quantized() || offset > weight.bytes || out.size() > weight.bytes - offset) {
      return fail(Errc::kInvalidArgument, "{}: tensor {} has {} bytes, cannot read {} from byte {} on", shown(folder_.path()),
                  quote(weight.name), weight.bytes, out.size(), offset);
    }
    std::uint64_t begin = 0;
    for (const BlockPlace& place : places_.find(weight.name)->second) {
      const std::uint64_t bytes = plain_bytes(weight, place.rows);
      const std::uint64_t from = std::max(begin, offset);
      const std::uint64_t to = std::min(begin + bytes, offset + out.size());
      if (from < to) {
        const auto values = TRY(read_block(place, bytes, 0));
        std::memcpy(out.data() + (from - offset), values.data.data() + (from - begin), to - from);
      }
      begin += bytes;
    }
    return {};
  }

 private:
  Result<void> open_part(const parquet::Library& library, const ParquetMetadata::Part& part) {
    OpenPart opened{.path = join_path(folder_.path(), part.file), .sha256 = part.sha256, .source = nullptr, .reader = nullptr};
    auto source = open_path(opened.path, {.access = Access::kPread, .stop = options_.stop});
    if (!source) return fail_at(shown(opened.path), source.error());
    if ((*source)->size() != part.bytes) {
      return fail(Errc::kCorrupt, "{}: file has {} bytes, {} says {}", shown(opened.path), (*source)->size(),
                  kParquetMetadataFile, part.bytes);
    }
    opened.source = std::move(*source);
    auto reader = library.open_reader(*opened.source);
    if (!reader) return fail_at(shown(opened.path), reader.error());
    opened.reader = std::move(*reader);
    parts_.push_back(std::move(opened));
    return {};
  }

  // Checks that every tensor's blocks are complete and in order.
  Result<void> check_blocks() {
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      const auto blocks = parts_[part].reader->blocks();
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        auto added = add_block(part, i, blocks[i]);
        if (!added) {
          return fail_at(escape(parts_[part].path),
                         std::move(added.error()).at(fmt::format("tensor {}", quote(blocks[i].layer_name))));
        }
      }
    }
    for (const auto& [tensor, format] : entries_) {
      const std::vector<BlockPlace>& places = places_.find(tensor.name)->second;
      const std::uint64_t rows = places.back().first_row + places.back().rows;
      const std::uint64_t count = parts_[places.back().part].reader->blocks()[places.back().block].block_count;
      if (rows != tensor.rows || places.size() != count) {
        return fail(Errc::kCorrupt, "{}: tensor {}: {} of {} blocks found, and {} of {} rows", shown(folder_.path()),
                    quote(tensor.name), places.size(), count, rows, tensor.rows);
      }
    }
    for (Entry& entry : entries_) {
      TRY(read_restore(entry));
      add(std::move(entry.weight), entry.format);
    }
    entries_.clear();
    index_weights();
    return {};
  }

  // Reads the column factors from the first block, if there are any.
  Result<void> read_restore(Entry& entry) {
    const BlockPlace& place = places_.find(entry.weight.name)->second.front();
    const auto& text = parts_[place.part].reader->blocks()[place.block].spatial_quant_json;
    if (!text || !entry.weight.is_quantized()) return {};
    std::vector<float>& restore = restore_.emplace_back();
    auto read = read_floats(*text, "equalization_scales", restore);
    if (read && restore.size() != entry.format.columns) {
      read = fail(Errc::kCorrupt, "has scales for {} columns, the tensor has {}", restore.size(), entry.format.columns);
    }
    if (read) read = check_restore(restore);
    if (!read) {
      const std::string where = fmt::format("tensor {}: spatial_quant_json", quote(entry.weight.name));
      return fail_at(escape(parts_[place.part].path), std::move(read.error()).at(where));
    }
    entry.format.restore = restore;
    entry.weight.storage.equalized = true;
    return {};
  }

  Result<void> add_block(std::size_t part, std::size_t index, const parquet::Block& block) {
    auto entry = TRY(describe(block));
    const Weight& tensor = entry.weight;
    std::vector<BlockPlace>& places = places_[block.layer_name];
    if (places.empty()) {
      entry.weight.file = without_secrets(parts_[part].path);
      entries_.push_back(entry);
    } else {
      const parquet::Block& first = parts_[places.front().part].reader->blocks()[places.front().block];
      const bool same = first.shape == block.shape && first.dtype == block.dtype && first.quant_type == block.quant_type &&
                        first.group_size == block.group_size && first.block_count == block.block_count;
      if (!same) return fail(Errc::kCorrupt, "block {} describes the tensor differently than its first block", block.block);
    }
    const std::uint64_t next = places.empty() ? 0 : places.back().first_row + places.back().rows;
    if (block.block != places.size() || block.row_offset != next || block.row_count > tensor.rows - next) {
      return fail(Errc::kCorrupt, "block {} has rows {} to {}, expected block {} from row {} on", block.block, block.row_offset,
                  block.row_offset + block.row_count, places.size(), next);
    }
    const std::uint64_t elements = *checked_elements(tensor.shape);  // known not to overflow
    const std::uint64_t expected = tensor.rows == 0 ? 0 : elements / tensor.rows * block.row_count;
    if (block.num_params != expected) {
      return fail(Errc::kCorrupt, "block {} has num_params {}, its rows have {} values", block.block, block.num_params, expected);
    }
    places.push_back({.part = part, .block = index, .first_row = block.row_offset, .rows = block.row_count});
    return {};
  }

  // Elements of fewer than 8 bits may leave rows that end within a byte; such tensors have one block.
  static std::uint64_t plain_bytes(const Weight& tensor, std::uint64_t rows) {
    return tensor.rows == 0 ? 0 : rows == tensor.rows ? tensor.bytes : tensor.bytes / tensor.rows * rows;
  }

  template <class Work>
  Result<void> for_each_part(const Weight& tensor, std::uint64_t first, std::uint64_t count, Work&& work) const {
    if (first > tensor.rows || count > tensor.rows - first) {
      return fail(Errc::kInvalidArgument, "{}: tensor {} has {} rows, cannot read {} from row {} on", shown(folder_.path()),
                  quote(tensor.name), tensor.rows, count, first);
    }
    for (const BlockPlace& place : places_.find(tensor.name)->second) {
      const std::uint64_t from = std::max(place.first_row, first);
      const std::uint64_t to = std::min(place.first_row + place.rows, first + count);
      if (from >= to) continue;
      TRY(work(place, from, to - from));
    }
    return {};
  }

  Result<parquet::Reader::Values> read_block(const BlockPlace& place, std::uint64_t bytes, std::uint64_t parameters) const {
    const OpenPart& part = parts_[place.part];
    auto values = part.reader->read(place.block);
    const auto here = [&](Error error) {
      const std::string& name = part.reader->blocks()[place.block].layer_name;
      return fail_at(shown(part.path), std::move(error).at(fmt::format("tensor {}", quote(name))));
    };
    if (!values) return here(std::move(values.error()));
    if (values->data.size() != bytes) {
      return here(
          {.code = Errc::kCorrupt, .message = fmt::format("a block has {} bytes, expected {}", values->data.size(), bytes)});
    }
    if (values->scales.size() != parameters || values->zero_points.size() != parameters) {
      return here({.code = Errc::kCorrupt,
                   .message = fmt::format("a block has {} scales and {} zero points, expected {}", values->scales.size(),
                                          values->zero_points.size(), parameters)});
    }
    return values;
  }

  std::string path_;
  Folder folder_;
  ReadOptions options_;
  Modality modality_ = Modality::kUnknown;
  std::optional<ModelConfig> config_;
  Metadata metadata_;
  std::optional<std::vector<double>> boundaries_;
  std::vector<OpenPart> parts_;
  std::vector<Entry> entries_;             // while they are being read
  std::list<std::vector<float>> restore_;  // referred to by row formats
  std::map<std::string, std::vector<BlockPlace>, std::less<>> places_;
};

}  // namespace

bool is_parquet_model(const Place& place) {
  if (!place.folder) return false;
  const auto files = place.folder->files();
  if (files && std::ranges::any_of(*files, is_parquet_part, &ListedFile::name)) return true;
  const auto text = place.folder->read_text(kParquetMetadataFile);  // others have files of that name, which may be unreadable
  return text && *text && (*text)->contains(kParquetFormat);
}

Result<std::unique_ptr<WeightsReader>> open_parquet_reader(const std::string& given, Folder folder, const OpenOptions& options) {
  auto reader = std::make_unique<ParquetReader>(without_secrets(given), std::move(folder), read_options(options));
  TRY(reader->open());
  return reader;
}

}  // namespace ballast
