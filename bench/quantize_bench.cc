// The quantization kernels, in turns with memcpy on as many threads. Run it from an optimized build:
//   build/release/bench/quantize_bench [--repetitions N]
// The weights are 256 MiB of BF16, normally distributed, in rows of 4096 and groups of 64; memcpy copies them. Figures are of
// what the pipeline does with a block in memory: quantize, pack, and measure the error.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <ballast/convert.h>

#include "base/bytes.h"
#include "base/parallel.h"
#include "convert/kernels.h"
#include "quantize/groups.h"
#include "quantize/packing.h"
#include "quantize/rows.h"

namespace {

using ballast::DType;
using ballast::QuantizeMethod;
using ballast::QuantizeType;
using ballast::RowFormat;

constexpr std::size_t kColumns = 4096;
constexpr std::size_t kBytes = std::size_t{256} << 20;
constexpr std::size_t kValues = kBytes / 2;
constexpr std::size_t kBlockRows = 256;
constexpr std::size_t kBlockBytes = kBlockRows * kColumns * 2;

struct Row {
  std::string title;
  unsigned threads;
  std::function<void(std::size_t block)> work;
  std::vector<double> times;  // seconds

  double median() const {
    std::vector<double> sorted = times;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

ballast::Bytes make_weights() {
  constexpr std::size_t kDistinct = std::size_t{1} << 22;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(kDistinct);
  for (float& value : values) value = normal(random);
  ballast::Bytes bytes(ballast::allocate_bytes(kBytes));
  const std::span first(bytes.get(), kDistinct * 2);
  if (!convert_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, first)) std::abort();
  for (std::size_t at = first.size(); at < kBytes; at += first.size()) std::memcpy(bytes.get() + at, bytes.get(), first.size());
  return bytes;
}

RowFormat integers(unsigned bits) { return {.columns = kColumns, .bits = bits, .group_size = 64}; }

RowFormat floats(QuantizeType type) {
  const ballast::FloatType& of = *ballast::float_type(type);
  return {.columns = kColumns,
          .bits = of.bits,
          .group_size = of.group_size,
          .affine = ballast::Affine::kScale,
          .parameters = of.scales,
          .element = of.element};
}

constexpr std::array kFloatTypes{QuantizeType::kMxfp4, QuantizeType::kMxfp8, QuantizeType::kNvfp4};

struct Distribution {
  std::string_view name;
  std::function<double(std::mt19937_64&, std::size_t column)> draw;
};

double relative_rmse(QuantizeMethod method, const RowFormat& format, std::span<const std::byte> weights) {
  const std::size_t rows = weights.size() / 2 / format.columns;
  std::vector<std::byte> packed(rows * format.packed_bytes());
  std::vector<float> scales(rows * format.groups());
  std::vector<float> offsets(scales.size());
  const auto sums =
      quantize_rows(method, format, DType::kBF16, weights, {}, {.packed = packed, .scales = scales, .offsets = offsets});
  return quality_of(sums).relative_rmse;
}

// What the methods make of weights of three kinds: 1,024 rows of 1,024 BF16 values each.
void print_quality() {
  constexpr std::size_t kSide = 1024;
  const std::vector<Distribution> distributions{
      {.name = "normal", .draw = [](auto& random, std::size_t) { return std::normal_distribution<double>(0, 0.02)(random); }},
      {.name = "Student t5",
       .draw = [](auto& random, std::size_t) { return 0.02 * std::student_t_distribution<double>(5)(random); }},
      {.name = "1 % columns x8", .draw = [](auto& random, std::size_t column) {
         return std::normal_distribution<double>(0, 0.02)(random) * (column % 100 == 17 ? 8 : 1);
       }}};
  fmt::print("\n{:<16}{:>6}{:>12}{:>12}{:>12}   relative RMSE; of integers in groups of 64\n", "", "bits", "rtn", "hqq",
             "search");
  for (const Distribution& distribution : distributions) {
    std::mt19937_64 random(11);
    std::vector<float> values(kSide * kSide);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(distribution.draw(random, i % kSide));
    std::vector<std::byte> weights(values.size() * 2);
    if (!convert_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, weights)) std::abort();
    const auto print_row = [&](const std::string& title, RowFormat format) {
      format.columns = kSide;
      fmt::print("{:<16}{:>6}", distribution.name, title);
      for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kHqq, QuantizeMethod::kSearch}) {
        const bool has_method = method != QuantizeMethod::kHqq || format.element == ballast::Element::kInteger;
        fmt::print("{:>12}", has_method ? fmt::format("{:.4f}", relative_rmse(method, format, weights)) : "");
      }
      fmt::print("\n");
    };
    for (const unsigned bits : {2U, 3U, 4U, 5U, 6U, 8U}) print_row(fmt::to_string(bits), integers(bits));
    for (const QuantizeType type : kFloatTypes) print_row(std::string(name(type)), floats(type));
  }
}

std::string machine() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return fmt::format("{}, {} cores", line.substr(line.find(':') + 2), std::thread::hardware_concurrency());
    }
  }
  return "unknown CPU";
}

// The weights, and room for what becomes of them.
class Work {
 public:
  Work() { std::memset(out_.get(), 1, kBytes); }

  void copy(std::size_t block) const {
    std::memcpy(out_.get() + block * kBlockBytes, in_.get() + block * kBlockBytes, kBlockBytes);
  }

  void quantize(QuantizeMethod method, const RowFormat& format, std::size_t block) {
    const std::size_t groups = kBlockRows * format.groups();
    const std::size_t packed = kBlockRows * format.packed_bytes();
    const auto sums = quantize_rows(method, format, DType::kBF16, {in_.get() + block * kBlockBytes, kBlockBytes}, {},
                                    {.packed = {out_.get() + block * packed, packed},
                                     .scales = std::span(scales_).subspan(block * groups, groups),
                                     .offsets = std::span(offsets_).subspan(block * groups, groups)});
    if (!(sums.error > 0)) std::abort();
  }

  // Without measuring the error, which the library always does.
  void round_alone(std::size_t block) {
    constexpr std::size_t kChunk = 2048;
    const RowFormat format{.columns = kColumns, .bits = 4, .group_size = 64};
    alignas(64) std::array<float, kChunk> values{};
    alignas(64) std::array<std::uint8_t, kChunk> codes{};
    for (std::size_t at = block * kBlockBytes / 2; at < (block + 1) * kBlockBytes / 2; at += kChunk) {
      ballast::to_f32(DType::kBF16, in_.get() + at * 2, kChunk, std::as_writable_bytes(std::span(values)).data(),
                      ballast::Stores::kOrdinary);
      ballast::rtn_groups({.format = format,
                           .groups = kChunk / 64,
                           .values = values.data(),
                           .importance = nullptr,
                           .codes = codes.data(),
                           .scales = scales_.data() + at / 64,
                           .offsets = offsets_.data() + at / 64,
                           .next = {in_.get() + (at + kChunk) * 2, std::min(kChunk, kValues - at - kChunk) * 2}});
      ballast::pack_codes(4, codes, out_.get() + at / 2);
    }
  }

 private:
  ballast::Bytes in_ = make_weights();
  ballast::Bytes out_{ballast::allocate_bytes(kBytes)};
  std::vector<float> scales_ = std::vector<float>(kValues / 16);  // of the smallest groups
  std::vector<float> offsets_ = std::vector<float>(kValues / 16);
};

std::vector<Row> make_rows(Work& work) {
  std::vector<Row> rows;
  for (const unsigned threads : {1U, std::thread::hardware_concurrency()}) {
    const auto add = [&](std::string title, std::function<void(std::size_t)> row) {
      rows.push_back({.title = std::move(title), .threads = threads, .work = std::move(row), .times = {}});
    };
    const auto add_format = [&](QuantizeMethod method, const std::string& title, const RowFormat& format) {
      add(fmt::format("{}, {}", name(method), title),
          [&work, method, format](std::size_t block) { work.quantize(method, format, block); });
    };
    const auto add_method = [&](QuantizeMethod method, unsigned bits) {
      add_format(method, fmt::format("{} bits", bits), integers(bits));
    };
    add("memcpy", [&work](std::size_t block) { work.copy(block); });
    add("rtn alone, 4 bits", [&work](std::size_t block) { work.round_alone(block); });
    for (const unsigned bits : {4U, 2U, 8U, 3U}) add_method(QuantizeMethod::kRtn, bits);
    for (const unsigned bits : {4U, 2U, 8U}) add_method(QuantizeMethod::kSearch, bits);
    add_method(QuantizeMethod::kHqq, 4);
    for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kSearch}) {
      for (const QuantizeType type : kFloatTypes) add_format(method, std::string(name(type)), floats(type));
    }
  }
  return rows;
}

void time_rows(std::vector<Row>& rows, int repetitions) {
  for (int i = 0; i <= repetitions; ++i) {  // the first is for warming up
    for (Row& row : rows) {
      const bool slow = !row.title.starts_with("rtn") && row.title != "memcpy";
      const std::size_t blocks = kBytes / kBlockBytes / (slow ? 8 : 1);
      const double before = seconds();
      ballast::parallel_for(blocks, row.threads, [&](unsigned, std::size_t block) {
        row.work(block);
        return true;
      });
      if (i > 0) row.times.push_back((seconds() - before) * (slow ? 8 : 1));
    }
  }
}

void print_rows(const std::vector<Row>& rows) {
  fmt::print("{:<20}{:>9}{:>20}{:>16}{:>12}\n", "", "threads", "ns/weight/thread", "GB/s read", "of memcpy");
  const auto copied = [&](const Row& row) {
    return std::ranges::find_if(rows, [&](const Row& r) { return r.title == "memcpy" && r.threads == row.threads; })->median();
  };
  for (const Row& row : rows) {
    fmt::print("{:<20}{:>9}{:>20.3f}{:>16.2f}{:>12.2f}\n", row.title, row.threads,
               row.median() * 1e9 * row.threads / static_cast<double>(kValues), static_cast<double>(kBytes) / row.median() / 1e9,
               copied(row) / row.median());
  }
}

}  // namespace

int main(int argc, char** argv) {
  int repetitions = 9;
  if (argc == 3 && std::string_view(argv[1]) == "--repetitions") {
    repetitions = std::max(1, std::atoi(argv[2]));
  } else if (argc != 1) {
    fmt::print(stderr, "usage: quantize_bench [--repetitions N]\n");
    return 2;
  }
  Work work;
  std::vector<Row> rows = make_rows(work);
  time_rows(rows, repetitions);
  fmt::print("{}; median of {}, taken in turns; {} MiB of BF16 in rows of {}, groups of 64\n\n", machine(), repetitions,
             kBytes >> 20, kColumns);
  print_rows(rows);
  print_quality();
}
