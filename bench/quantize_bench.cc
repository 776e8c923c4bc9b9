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
  std::vector<double> times{};  // seconds

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
  if (!convert_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, first)) std::exit(1);
  for (std::size_t at = first.size(); at < kBytes; at += first.size()) std::memcpy(bytes.get() + at, bytes.get(), first.size());
  return bytes;
}

struct Distribution {
  std::string_view name;
  std::function<double(std::mt19937_64&, std::size_t column)> draw;
};

// What the methods make of weights of three kinds: 1,024 rows of 1,024 BF16 values each.
void print_quality() {
  constexpr std::size_t kSide = 1024;
  const std::vector<Distribution> distributions{
      {"normal", [](auto& random, std::size_t) { return std::normal_distribution<double>(0, 0.02)(random); }},
      {"Student t5", [](auto& random, std::size_t) { return 0.02 * std::student_t_distribution<double>(5)(random); }},
      {"1 % columns x8", [](auto& random, std::size_t column) {
         return std::normal_distribution<double>(0, 0.02)(random) * (column % 100 == 17 ? 8 : 1);
       }}};
  fmt::print("\n{:<16}{:>6}{:>12}{:>12}{:>12}   relative RMSE, groups of 64\n", "", "bits", "rtn", "hqq", "search");
  for (const Distribution& distribution : distributions) {
    std::mt19937_64 random(11);
    std::vector<float> values(kSide * kSide);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(distribution.draw(random, i % kSide));
    std::vector<std::byte> weights(values.size() * 2);
    if (!convert_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, weights)) std::exit(1);
    for (const unsigned bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
      const RowFormat format{.columns = kSide, .bits = bits, .group_size = 64};
      std::vector<std::byte> packed(kSide * format.packed_bytes());
      std::vector<float> scales(kSide * format.groups());
      std::vector<float> offsets(scales.size());
      fmt::print("{:<16}{:>6}", distribution.name, bits);
      for (const QuantizeMethod method : {QuantizeMethod::kRtn, QuantizeMethod::kHqq, QuantizeMethod::kSearch}) {
        const auto sums = quantize_rows(method, format, DType::kBF16, weights, {}, {packed, scales, offsets});
        fmt::print("{:>12.4f}", quality_of(sums).relative_rmse);
      }
      fmt::print("\n");
    }
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

}  // namespace

int main(int argc, char** argv) {
  int repetitions = 9;
  if (argc == 3 && std::string_view(argv[1]) == "--repetitions") {
    repetitions = std::max(1, std::atoi(argv[2]));
  } else if (argc != 1) {
    fmt::print(stderr, "usage: quantize_bench [--repetitions N]\n");
    return 2;
  }
  const ballast::Bytes in = make_weights();
  const ballast::Bytes out(ballast::allocate_bytes(kBytes));
  std::memset(out.get(), 1, kBytes);
  std::vector<float> scales(kValues / 64);
  std::vector<float> offsets(kValues / 64);

  const auto quantize = [&](QuantizeMethod method, unsigned bits) {
    return [&, method, format = RowFormat{.columns = kColumns, .bits = bits, .group_size = 64}](std::size_t block) {
      const std::size_t groups = kBlockRows * format.groups();
      const std::size_t packed = kBlockRows * format.packed_bytes();
      const auto sums = quantize_rows(method, format, DType::kBF16, {in.get() + block * kBlockBytes, kBlockBytes}, {},
                                      {.packed = {out.get() + block * packed, packed},
                                       .scales = std::span(scales).subspan(block * groups, groups),
                                       .offsets = std::span(offsets).subspan(block * groups, groups)});
      if (!(sums.error > 0)) std::exit(1);
    };
  };
  const auto copy = [&](std::size_t block) {
    std::memcpy(out.get() + block * kBlockBytes, in.get() + block * kBlockBytes, kBlockBytes);
  };
  // Without measuring the error, which the library always does.
  const auto round_alone = [&](std::size_t block) {
    constexpr std::size_t kChunk = 2048;
    const RowFormat format{.columns = kColumns, .bits = 4, .group_size = 64};
    alignas(64) std::array<float, kChunk> values;
    alignas(64) std::array<std::uint8_t, kChunk> codes;
    for (std::size_t at = block * kBlockBytes / 2; at < (block + 1) * kBlockBytes / 2; at += kChunk) {
      ballast::to_f32(DType::kBF16, in.get() + at * 2, kChunk, reinterpret_cast<std::byte*>(values.data()),
                      ballast::Stores::kOrdinary);
      ballast::rtn_groups({.format = format,
                           .groups = kChunk / 64,
                           .values = values.data(),
                           .importance = nullptr,
                           .codes = codes.data(),
                           .scales = scales.data() + at / 64,
                           .offsets = offsets.data() + at / 64,
                           .next = {in.get() + (at + kChunk) * 2, std::min(kChunk, kValues - at - kChunk) * 2}});
      ballast::pack_codes(4, codes, out.get() + at / 2);
    }
  };
  std::vector<Row> rows;
  for (const unsigned threads : {1U, std::thread::hardware_concurrency()}) {
    rows.push_back({"memcpy", threads, copy});
    rows.push_back({"rtn alone, 4 bits", threads, round_alone});
    for (const unsigned bits : {4U, 2U, 8U, 3U}) {
      rows.push_back({fmt::format("rtn, {} bits", bits), threads, quantize(QuantizeMethod::kRtn, bits)});
    }
    for (const unsigned bits : {4U, 2U, 8U}) {
      rows.push_back({fmt::format("search, {} bits", bits), threads, quantize(QuantizeMethod::kSearch, bits)});
    }
    rows.push_back({"hqq, 4 bits", threads, quantize(QuantizeMethod::kHqq, 4)});
  }
  for (int i = 0; i <= repetitions; ++i) {
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
  fmt::print("{}; median of {}, taken in turns; {} MiB of BF16 in rows of {}, groups of 64\n\n", machine(), repetitions,
             kBytes >> 20, kColumns);
  fmt::print("{:<20}{:>9}{:>20}{:>16}{:>12}\n", "", "threads", "ns/weight/thread", "GB/s read", "of memcpy");
  const auto copied = [&](const Row& row) {
    return std::ranges::find_if(rows, [&](const Row& r) { return r.title == "memcpy" && r.threads == row.threads; })->median();
  };
  for (const Row& row : rows) {
    fmt::print("{:<20}{:>9}{:>20.3f}{:>16.2f}{:>12.2f}\n", row.title, row.threads,
               row.median() * 1e9 * row.threads / static_cast<double>(kValues), static_cast<double>(kBytes) / row.median() / 1e9,
               copied(row) / row.median());
  }
  print_quality();
}
