#include "format/parquet/parquet.h"

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include <gmock/gmock.h>

#include "base/fail.h"
#include "format/parquet/load.h"
#include "tests/support/files.h"

// tests/python/test_parquet_format.py tests files of other programs, and other programs with our files.

namespace ballast::parquet {

namespace {

using test::as_bytes;
using test::fails;
using test::to_text;

struct Row {
  Block block;
  std::string data;
  std::vector<float> scales;
  std::vector<float> zero_points;
};

const Library& library() {
  const auto loaded = load_library();
  if (!loaded) throw std::runtime_error(loaded.error().message);
  return **loaded;
}

Result<void> append(Writer& writer, const Row& row) {
  return writer.append(row.block, as_bytes(row.data), row.scales, row.zero_points);
}

std::string write(const std::vector<Row>& rows, const WriterOptions& options = {}) {
  std::string file;
  const auto writer = library().create_writer(
      [&](std::span<const std::byte> bytes) -> Result<void> {
        file += to_text(bytes);
        return {};
      },
      options);
  if (!writer) throw std::runtime_error(writer.error().message);
  for (const Row& row : rows) {
    if (const auto appended = append(**writer, row); !appended) throw std::runtime_error(appended.error().message);
  }
  if (const auto finished = (*writer)->finish(); !finished) throw std::runtime_error(finished.error().message);
  return file;
}

Row make_row(std::string name, std::string data, std::size_t groups = 0) {
  Row row{.block = {.layer_name = std::move(name),
                    .dtype = "BF16",
                    .quant_type = groups == 0 ? "none" : "int4",
                    .shape = {data.size()},
                    .num_params = data.size(),
                    .bit_width = static_cast<std::uint8_t>(groups == 0 ? 16 : 4)},
          .data = std::move(data)};
  for (std::size_t i = 0; i < groups; ++i) {
    row.scales.push_back(0.5F + static_cast<float>(i));
    row.zero_points.push_back(-static_cast<float>(i));
  }
  return row;
}

// Bytes without repetition.
std::string noise(std::size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<char>(seed >> 24);
  }
  return bytes;
}

// Every field with extreme values; blocks that share row groups and blocks that do not.
std::vector<Row> sample() {
  std::vector<Row> rows;
  rows.push_back({.block = {.layer_name = "model.重み.weight",
                            .dtype = "F32",
                            .quant_type = "int8",
                            .shape = {3, 0, std::numeric_limits<std::uint64_t>::max()},
                            .block = std::numeric_limits<std::uint32_t>::max(),
                            .block_count = 7,
                            .row_offset = std::numeric_limits<std::uint64_t>::max(),
                            .row_count = 1ULL << 63,
                            .num_params = 64,
                            .bit_width = 255,
                            .quant_axis = 1,
                            .group_size = std::numeric_limits<std::uint64_t>::max(),
                            .is_diffusion_model = true,
                            .modality = "image",
                            .time_aware_quant_json = "{}",
                            .spatial_quant_json = "",
                            .activation_stats_json = std::string(5000, 'x')},
                  .data = noise(64, 1),
                  .scales = {1.0F, -0.0F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity()},
                  .zero_points = {7.5F}});
  rows.push_back(make_row("", ""));
  rows.back().block.shape.clear();
  rows.push_back(make_row("large", noise(3 << 20, 2), 600'000));
  for (unsigned i = 0; i < 300; ++i) rows.push_back(make_row("small." + std::to_string(i), noise(i, i), i / 3));
  rows.push_back(make_row("nearly large", noise((1 << 20) - 800, 3), 99));
  for (unsigned i = 0; i < 20; ++i) rows.push_back(make_row("middle." + std::to_string(i), noise(1'000'000, i), 100));
  return rows;
}

Row read_row(const Reader& reader, std::size_t i) {
  const auto values = reader.read(i);
  if (!values) throw std::runtime_error(values.error().message);
  Row row{
      .block = reader.blocks()[i], .data = to_text(values->data), .scales = values->scales, .zero_points = values->zero_points};
  const auto time_aware = reader.read_time_aware(i);
  if (!time_aware) throw std::runtime_error(time_aware.error().message);
  row.block.time_aware_quant_json = *time_aware;
  return row;
}

bool same(const Block& a, const Block& b) {
  const auto fields = [](const Block& block) {
    return std::tie(block.layer_name, block.dtype, block.quant_type, block.shape, block.block, block.block_count,
                    block.row_offset, block.row_count, block.num_params, block.bit_width, block.quant_axis, block.group_size,
                    block.is_diffusion_model, block.modality, block.time_aware_quant_json, block.spatial_quant_json,
                    block.activation_stats_json);
  };
  return fields(a) == fields(b);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool same(const Row& a, const Row& b) {
  return same(a.block, b.block) && a.data == b.data && same_bits(a.scales, b.scales) && same_bits(a.zero_points, b.zero_points);
}

Result<std::unique_ptr<Reader>> open(const Source& source) { return library().open_reader(source); }

// Opens a file and reads all of it.
Result<std::vector<Row>> read_all(const std::string& file) {
  const auto source = open_memory(as_bytes(file));
  const auto reader = open(*source);
  if (!reader) return std::unexpected(reader.error());
  std::vector<Row> rows;
  for (std::size_t i = 0; i < (*reader)->blocks().size(); ++i) {
    auto values = (*reader)->read(i);
    if (!values) return std::unexpected(values.error());
    rows.push_back({(*reader)->blocks()[i], to_text(values->data), std::move(values->scales), std::move(values->zero_points)});
  }
  return rows;
}

// Counts the bytes read and fails beyond a limit.
class CountingSource final : public Source {
 public:
  explicit CountingSource(const std::string& bytes) : bytes_(open_memory(as_bytes(bytes))) {}
  std::uint64_t size() const override { return bytes_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    count_ += out.size();
    if (count_ > limit_) return fail(Errc::kIo, "reading {} bytes at {}: the disk is gone", out.size(), offset);
    return bytes_->read_at(offset, out);
  }
  Result<std::span<const std::byte>> map() const override { return bytes_->map(); }
  Result<void> release(std::uint64_t offset, std::uint64_t length) const override { return bytes_->release(offset, length); }

  std::uint64_t take_count() { return count_.exchange(0); }
  void fail_after(std::uint64_t bytes) { limit_ = count_ + bytes; }

 private:
  std::unique_ptr<Source> bytes_;
  mutable std::atomic<std::uint64_t> count_ = 0;
  std::uint64_t limit_ = std::numeric_limits<std::uint64_t>::max();
};

TEST(ParquetFile, RoundTrips) {
  const std::vector<Row> rows = sample();
  for (const bool compress : {false, true}) {
    const std::string file = write(rows, {.compress_data = compress});
    const auto source = open_memory(as_bytes(file));
    const auto reader = open(*source);
    ASSERT_TRUE(reader) << reader.error().message;
    ASSERT_EQ((*reader)->blocks().size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(same(read_row(**reader, i), rows[i])) << i;
    for (std::size_t i = rows.size(); i-- > 0;) EXPECT_TRUE(same(read_row(**reader, i), rows[i])) << i;
  }
}

TEST(ParquetFile, MayHaveNoRows) {
  const auto rows = read_all(write({}));
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_TRUE(rows->empty());
}

TEST(ParquetFile, SameInputGivesTheSameBytes) {
  const std::vector<Row> rows = sample();
  EXPECT_EQ(write(rows), write(rows));
  EXPECT_EQ(write(rows, {.compress_data = true}), write(rows, {.compress_data = true}));
}

TEST(ParquetFile, DataIsCompressedOnRequest) {
  const std::vector<Row> rows{make_row("zeros", std::string(2 << 20, '\0'))};
  EXPECT_GT(write(rows).size(), 2U << 20);
  EXPECT_LT(write(rows, {.compress_data = true}).size(), 100'000U);
}

TEST(ParquetWriter, BuffersAtMostOneRowGroup) {
  std::uint64_t written = 0;
  const auto writer = library().create_writer(
      [&](std::span<const std::byte> bytes) -> Result<void> {
        written += bytes.size();
        return {};
      },
      {});
  ASSERT_TRUE(writer);
  const Row large = make_row("large", noise(2 << 20, 1));
  ASSERT_TRUE(append(**writer, large));
  EXPECT_GT(written, large.data.size());
  const Row small = make_row("small", noise(1 << 19, 1));
  std::uint64_t given = large.data.size();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(append(**writer, small));
    given += small.data.size();
    EXPECT_LE(given, written + (16 << 20));
  }
}

TEST(ParquetWriter, ReturnsAWriteErrorFromThenOn) {
  std::uint64_t room = 3 << 20;
  const auto writer = library().create_writer(
      [&](std::span<const std::byte> bytes) -> Result<void> {
        if (bytes.size() > room) return fail(Errc::kWrite, "no room for {} bytes", bytes.size() - bytes.size() % 1000);
        room -= bytes.size();
        return {};
      },
      {});
  ASSERT_TRUE(writer);
  const Row row = make_row("large", noise(2'000'000, 1));
  ASSERT_TRUE(append(**writer, row));
  EXPECT_TRUE(fails(append(**writer, row), Errc::kWrite, "no room for 2000000 bytes"));
  room = 100 << 20;
  EXPECT_TRUE(fails(append(**writer, row), Errc::kWrite, "no room for 2000000 bytes"));
  EXPECT_TRUE(fails((*writer)->finish(), Errc::kWrite, "no room for 2000000 bytes"));
}

TEST(ParquetWriter, CreationFailsIfNothingCanBeWritten) {
  const auto nowhere = [](std::span<const std::byte>) -> Result<void> { return fail(Errc::kWrite, "read-only"); };
  EXPECT_TRUE(fails(library().create_writer(nowhere, {}), Errc::kWrite, "read-only"));
}

TEST(ParquetWriter, AbandonedWriterWritesNoFooter) {
  std::string file;
  {
    const auto writer = library().create_writer(
        [&](std::span<const std::byte> bytes) -> Result<void> {
          file += to_text(bytes);
          return {};
        },
        {});
    ASSERT_TRUE(writer && append(**writer, make_row("x", "data")));
  }
  EXPECT_EQ(file, "PAR1");
}

TEST(ParquetWriter, FinishedFileRefusesMoreBlocks) {
  const auto writer = library().create_writer([](std::span<const std::byte>) -> Result<void> { return {}; }, {});
  ASSERT_TRUE(writer && (*writer)->finish());
  EXPECT_TRUE(fails(append(**writer, make_row("x", "data")), Errc::kInvalidArgument, "the file is already finished"));
  EXPECT_TRUE(fails((*writer)->finish(), Errc::kInvalidArgument, "the file is already finished"));
}

TEST(ParquetWriter, BlockTooLargeForAPageIsRefusedAndTheFileStaysUsable) {
  constexpr std::size_t kSize = 0x7fffffff - 1024;
  void* const memory = ::mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::string file;
  const auto writer = library().create_writer(
      [&](std::span<const std::byte> bytes) -> Result<void> {
        file += to_text(bytes);
        return {};
      },
      {});
  ASSERT_TRUE(writer);
  const Block block{.layer_name = "huge\n", .block = 3};
  EXPECT_TRUE(fails((*writer)->append(block, {static_cast<const std::byte*>(memory), kSize}, {}, {}), Errc::kWrite,
                    "block 3 of 'huge\\n' has 2147482623 bytes of values, but a Parquet page holds less than 2147482623; use "
                    "smaller blocks"));
  EXPECT_TRUE(fails((*writer)->append(block, {}, {}, {static_cast<const float*>(memory), kSize / 4 + 1}), Errc::kWrite,
                    "block 3 of 'huge\\n' has 2147482624 bytes of values, but a Parquet page holds less than 2147482623; use "
                    "smaller blocks"));
  ::munmap(memory, kSize);
  ASSERT_TRUE(append(**writer, make_row("x", "data")) && (*writer)->finish());
  const auto rows = read_all(file);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->size(), 1);
}

TEST(ParquetReader, OpeningReadsNoValues) {
  std::vector<Row> rows;
  for (unsigned i = 0; i < 4; ++i) rows.push_back(make_row("large", noise(4 << 20, i), 200'000));
  for (unsigned i = 0; i < 8; ++i) rows.push_back(make_row("small", noise(1 << 19, i), 20'000));
  const std::string file = write(rows);
  CountingSource source(file);
  const auto reader = open(source);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_LT(source.take_count(), 100'000U);

  EXPECT_TRUE(same(read_row(**reader, 2), rows[2]));
  EXPECT_LT(source.take_count(), 6U << 20);
  for (std::size_t i = 4; i < rows.size(); ++i) EXPECT_TRUE(same(read_row(**reader, i), rows[i]));
  EXPECT_LT(source.take_count(), 6U << 20) << "the row group of small blocks was read more than once";
}

TEST(ParquetReader, IsThreadSafe) {
  const std::vector<Row> rows = sample();
  const std::string file = write(rows);
  const auto source = open_memory(as_bytes(file));
  const auto reader = open(*source);
  ASSERT_TRUE(reader) << reader.error().message;
  std::atomic<std::size_t> good = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const std::size_t row = (i * 7 + t * 41) % rows.size();
          good += same(read_row(**reader, row), rows[row]) ? 1U : 0U;
        }
      });
    }
  }
  EXPECT_EQ(good, 8 * rows.size());
}

TEST(ParquetReader, BlockOutOfRangeIsAnInvalidArgument) {
  const std::string file = write({make_row("x", "data")});
  const auto source = open_memory(as_bytes(file));
  const auto reader = open(*source);
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_TRUE(fails((*reader)->read(1), Errc::kInvalidArgument, "block 1 is out of range: there are 1 blocks"));
}

TEST(ParquetReader, ErrorSaysWhyAFileIsNotParquet) {
  EXPECT_TRUE(fails(read_all("PAR1PAR1"), Errc::kCorrupt, "file of 8 bytes is too small for Parquet (at least 12 bytes)"));
  EXPECT_TRUE(fails(read_all("GGUF12345678PAR1"), Errc::kCorrupt, "not a Parquet file: it begins with 'GGUF', not 'PAR1'"));
  EXPECT_TRUE(fails(read_all("PAR1 and more\x1b[m"), Errc::kCorrupt,
                    "file is truncated or not Parquet: it ends with 'e\\x1b[m', not 'PAR1'"));
  EXPECT_TRUE(fails(read_all("PARE12345678PARE"), Errc::kUnsupported, "the file is encrypted"));
  EXPECT_TRUE(fails(read_all(std::string("PAR1\x01\0\0\0PAR1", 12)), Errc::kCorrupt,
                    "footer of 1 bytes does not fit into the file (12 bytes)"));
  EXPECT_TRUE(fails(read_all("PAR1" + noise(100'000'001, 1) + test::raw<std::uint32_t>({100'000'001}) + "PAR1"),
                    Errc::kUnsupported, "footer of 100000001 bytes exceeds the limit of 100000000 bytes"));
}

TEST(ParquetReader, TruncatedFilesAreCorrupt) {
  const std::string file = write({make_row("x", noise(100, 1), 10), make_row("y", noise(100, 2), 10)});
  for (std::size_t size = 12; size < file.size(); size += 5) {
    const auto rows = read_all(file.substr(0, size));
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code, Errc::kCorrupt);
  }
  for (std::size_t size = 12; size + 4 < file.size(); size += 5) {
    const auto rows = read_all("PAR1" + file.substr(file.size() - size));
    ASSERT_FALSE(rows);
    EXPECT_EQ(rows.error().code, Errc::kCorrupt) << rows.error().message;
  }
}

TEST(ParquetReader, ReturnsReadErrors) {
  const std::string file = write({make_row("x", noise(2 << 20, 1), 10)});
  CountingSource source(file);
  const auto reader = open(source);
  ASSERT_TRUE(reader) << reader.error().message;
  source.fail_after(100'000);
  const auto values = (*reader)->read(0);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code, Errc::kIo);
  EXPECT_THAT(values.error().message,
              testing::MatchesRegex("block 0 of 'x': row group 0: reading [0-9]+ bytes at [0-9]+: the disk is gone"));
  source.fail_after(0);
  EXPECT_TRUE(fails(open(source), Errc::kIo, "reading 4 bytes at 0: the disk is gone"));
}

TEST(ParquetReader, FindsDamagedValues) {
  const Row row = make_row("x", noise(1000, 1));
  std::string file = write({row});
  const std::size_t place = file.find(row.data);
  ASSERT_NE(place, std::string::npos);
  file[place + 500] ^= 1;
  const auto source = open_memory(as_bytes(file));
  const auto reader = open(*source);
  ASSERT_TRUE(reader) << reader.error().message;
  const auto values = (*reader)->read(0);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code, Errc::kCorrupt);
  EXPECT_THAT(values.error().message,
              testing::HasSubstr("block 0 of 'x': row group 0: could not verify page integrity, CRC checksum verification "
                                 "failed"));
}

TEST(ParquetReader, SurvivesAnyDamage) {
  Row tagged = make_row("y", noise(40, 2), 4);
  tagged.block.modality = "text";
  const std::vector<Row> rows{make_row("x", noise(50, 1), 10), tagged};
  for (const bool compress : {false, true}) {
    const std::string file = write(rows, {.compress_data = compress});
    std::string damaged = file;
    for (std::size_t i = 0; i < file.size(); ++i) {
      constexpr std::array kFlips{0x01, 0x02, 0x10, 0x80, 0xff};
      damaged[i] = static_cast<char>(file[i] ^ kFlips[(i + (compress ? 2 : 0)) % kFlips.size()]);
      const auto read = read_all(damaged);
      damaged[i] = file[i];
      if (read) continue;
      EXPECT_THAT(read.error().code, testing::AnyOf(Errc::kCorrupt, Errc::kUnsupported)) << read.error().message;
    }
  }
}

}  // namespace
}  // namespace ballast::parquet
