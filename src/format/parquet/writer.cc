#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/builder.h>
#include <arrow/io/interfaces.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>
#include <arrow/table_builder.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include <ballast/version.h>

#include "base/fail.h"
#include "base/text.h"
#include "format/parquet/arrow_error.h"
#include "format/parquet/columns.h"
#include "format/parquet/library.h"

namespace ballast::parquet {
namespace {

// Limit of decoded bytes in a row group of several blocks, and size from which a block gets a row group of its own.
constexpr std::size_t kRowGroupBytes = 16 << 20;
constexpr std::size_t kLoneBytes = 1 << 20;

// The size of a page is an int32 and includes lengths and levels.
constexpr std::size_t kPageBytes = std::numeric_limits<std::int32_t>::max() - 1024;

class AppendStream final : public arrow::io::OutputStream {
 public:
  explicit AppendStream(Append append) : append_(std::move(append)) {}

  using OutputStream::Write;
  arrow::Status Write(const void* data, std::int64_t size) override {
    if (closed_) return arrow::Status::Invalid("write after close");
    auto appended = append_({static_cast<const std::byte*>(data), static_cast<std::size_t>(size)});
    if (!appended) return to_status(std::move(appended.error()));
    position_ += size;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

 private:
  Append append_;
  std::int64_t position_ = 0;
  bool closed_ = false;
};

std::shared_ptr<arrow::DataType> arrow_type(Kind kind) {
  switch (kind) {
    case Kind::kText: return arrow::utf8();
    case Kind::kBytes: return arrow::large_binary();
    case Kind::kBool: return arrow::boolean();
    case Kind::kUint8: return arrow::uint8();
    case Kind::kUint32: return arrow::uint32();
    case Kind::kUint64: return arrow::uint64();
    case Kind::kUint64List: return arrow::list(arrow::field("element", arrow::uint64()));
    case Kind::kFloatList: return arrow::list(arrow::field("element", arrow::float32(), /*nullable=*/false));
  }
  return nullptr;
}

std::shared_ptr<arrow::Schema> make_schema() {
  arrow::FieldVector fields;
  for (const Column& column : kColumns)
    fields.push_back(arrow::field(std::string(column.name), arrow_type(column.kind), column.nullable));
  return arrow::schema(std::move(fields), arrow::key_value_metadata({"format", "version"}, {"parquet_v2_extended", "2"}));
}

std::shared_ptr<::parquet::WriterProperties> make_properties(const WriterOptions& options) {
  ::parquet::WriterProperties::Builder properties;
  properties.memory_pool(arrow::system_memory_pool())
      ->created_by(fmt::format("ballast version {}", kVersion))
      ->enable_page_checksum()
      ->set_size_statistics_level(::parquet::SizeStatisticsLevel::None)
      ->disable_dictionary()
      ->compression(arrow::Compression::ZSTD);
  for (const Column& column : kColumns) {
    const std::string name(column.name);
    const std::string items = name + ".list.element";
    switch (column.kind) {
      case Kind::kText:
        properties.enable_dictionary(name);
        if (name.ends_with("_json")) properties.disable_statistics(name);
        break;
      case Kind::kBytes:
        properties.disable_statistics(name);
        if (!options.compress_data) properties.compression(name, arrow::Compression::UNCOMPRESSED);
        break;
      case Kind::kFloatList: properties.encoding(items, ::parquet::Encoding::BYTE_STREAM_SPLIT)->disable_statistics(items); break;
      case Kind::kUint64List: properties.disable_statistics(items); break;
      default: break;
    }
  }
  return properties.build();
}

// Never a null pointer: Arrow calls memcpy even for empty data.
std::string_view as_text(std::span<const std::byte> bytes) {
  return bytes.empty() ? "" : std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

class FileWriter final : public Writer {
 public:
  // Lets Arrow's exceptions pass.
  FileWriter(Append append, const WriterOptions& options)
      : schema_(make_schema()), stream_(std::make_shared<AppendStream>(std::move(append))) {
    PARQUET_ASSIGN_OR_THROW(rows_, arrow::RecordBatchBuilder::Make(schema_, arrow::system_memory_pool()));
    // Without the stored Arrow schema, `data` would be read as binary with 32-bit offsets.
    PARQUET_ASSIGN_OR_THROW(
        file_, ::parquet::arrow::FileWriter::Open(*schema_, arrow::system_memory_pool(), stream_, make_properties(options),
                                                  ::parquet::ArrowWriterProperties::Builder().store_schema()->build()));
  }

  // Otherwise Arrow would write a footer in its destructor.
  ~FileWriter() override { static_cast<void>(stream_->Close()); }

  Result<void> append(const Block& block, std::span<const std::byte> data, std::span<const float> scales,
                      std::span<const float> zero_points) override {
    if (!state_) return state_;
    const std::size_t largest = std::max({data.size(), scales.size_bytes(), zero_points.size_bytes()});
    if (largest >= kPageBytes) {
      return fail(Errc::kWrite,
                  "block {} of {} has {} bytes of values, but a Parquet page holds less than {}; use smaller blocks", block.block,
                  quote(block.layer_name), largest, kPageBytes);
    }
    return attempt([&] { add(block, data, scales, zero_points); });
  }

  Result<void> finish() override {
    if (!state_) return state_;
    auto finished = attempt([&] {
      write_row_group();
      PARQUET_THROW_NOT_OK(file_->Close());
    });
    if (finished) state_ = fail(Errc::kInvalidArgument, "the file is already finished");
    return finished;
  }

 private:
  // After a failure the file is unusable, and every later call returns the same error.
  template <class Work>
  Result<void> attempt(Work&& work) {
    state_ = guard(Errc::kWrite, [&]() -> Result<void> {
      std::forward<Work>(work)();
      return {};
    });
    return state_;
  }

  void add(const Block& block, std::span<const std::byte> data, std::span<const float> scales,
           std::span<const float> zero_points) {
    const std::size_t size = data.size() + scales.size_bytes() + zero_points.size_bytes();
    const bool lone = size >= kLoneBytes;
    if (lone || pending_bytes_ + size > kRowGroupBytes) write_row_group();
    add_row(block, lone ? std::span<const std::byte>() : data, scales, zero_points);
    pending_bytes_ += size;
    if (lone) write_row_group(data);
  }

  void add_row(const Block& block, std::span<const std::byte> data, std::span<const float> scales,
               std::span<const float> zero_points) {
    put<arrow::StringBuilder>(kLayerName, block.layer_name);
    put<arrow::StringBuilder>(kDtype, block.dtype);
    put<arrow::StringBuilder>(kQuantType, block.quant_type);
    put_list<arrow::UInt64Builder>(kShape, std::span(block.shape));
    put<arrow::UInt32Builder>(kBlock, block.block);
    put<arrow::UInt32Builder>(kBlockCount, block.block_count);
    put<arrow::UInt64Builder>(kRowOffset, block.row_offset);
    put<arrow::UInt64Builder>(kRowCount, block.row_count);
    put<arrow::LargeBinaryBuilder>(kData, as_text(data));
    put<arrow::UInt64Builder>(kNumParams, block.num_params);
    put_list<arrow::FloatBuilder>(kScales, scales);
    put_list<arrow::FloatBuilder>(kZeroPoints, zero_points);
    put<arrow::UInt8Builder>(kBitWidth, block.bit_width);
    put_optional<arrow::UInt64Builder>(kQuantAxis, block.quant_axis);
    put_optional<arrow::UInt64Builder>(kGroupSize, block.group_size);
    put<arrow::BooleanBuilder>(kIsDiffusionModel, block.is_diffusion_model);
    put_optional<arrow::StringBuilder>(kModality, block.modality);
    put_optional<arrow::StringBuilder>(kTimeAwareQuantJson, block.time_aware_quant_json);
    put_optional<arrow::StringBuilder>(kSpatialQuantJson, block.spatial_quant_json);
    put_optional<arrow::StringBuilder>(kActivationStatsJson, block.activation_stats_json);
    ++pending_rows_;
  }

  template <class Builder, class Value>
  void put(ColumnId column, const Value& value) {
    PARQUET_THROW_NOT_OK(rows_->GetFieldAs<Builder>(column)->Append(value));
  }

  template <class Builder, class Value>
  void put_optional(ColumnId column, const std::optional<Value>& value) {
    if (value) {
      put<Builder>(column, *value);
    } else {
      PARQUET_THROW_NOT_OK(rows_->GetFieldAs<Builder>(column)->AppendNull());
    }
  }

  template <class Builder, class Value>
  void put_list(ColumnId column, std::span<Value> values) {
    auto* const list = rows_->GetFieldAs<arrow::ListBuilder>(column);
    PARQUET_THROW_NOT_OK(list->Append());
    if (values.empty()) return;
    PARQUET_THROW_NOT_OK(
        static_cast<Builder*>(list->value_builder())->AppendValues(values.data(), static_cast<std::int64_t>(values.size())));
  }

  // Writes the pending rows. If `data` is given, there is one row, without data; this avoids a copy of large data.
  void write_row_group(std::optional<std::span<const std::byte>> data = std::nullopt) {
    if (pending_rows_ == 0) return;
    PARQUET_ASSIGN_OR_THROW(std::shared_ptr<arrow::RecordBatch> rows, rows_->Flush());
    pending_rows_ = 0;
    pending_bytes_ = 0;
    std::array<std::int64_t, 2> offsets{};
    if (data) {
      offsets[1] = static_cast<std::int64_t>(data->size());
      const auto bytes = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(data->data()), offsets[1]);
      const auto column =
          std::make_shared<arrow::LargeBinaryArray>(1, arrow::Buffer::Wrap(offsets.data(), offsets.size()), bytes);
      PARQUET_ASSIGN_OR_THROW(rows, rows->SetColumn(kData, schema_->field(kData), column));
    }
    PARQUET_ASSIGN_OR_THROW(const std::shared_ptr<arrow::Table> table, arrow::Table::FromRecordBatches({rows}));
    PARQUET_THROW_NOT_OK(file_->WriteTable(*table, table->num_rows()));
  }

  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<AppendStream> stream_;
  std::unique_ptr<arrow::RecordBatchBuilder> rows_;
  std::unique_ptr<::parquet::arrow::FileWriter> file_;
  std::size_t pending_rows_ = 0;
  std::size_t pending_bytes_ = 0;
  Result<void> state_;
};

}  // namespace

Result<std::unique_ptr<Writer>> create_writer(Append append, const WriterOptions& options) {
  return guard(Errc::kWrite,
               [&]() -> Result<std::unique_ptr<Writer>> { return std::make_unique<FileWriter>(std::move(append), options); });
}

}  // namespace ballast::parquet
