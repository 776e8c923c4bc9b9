// Conversions on one thread, in turns with memcpy. Run it from an optimized build:
//   build/release/bench/convert_bench [--repetitions N] [--json]
// Buffers lie in huge pages where the system has them, and all are touched before. The smaller side of a conversion between F32
// and 16 bits is 128 MiB, the larger 256; memcpy copies 256 MiB. Throughput counts the bytes read and the bytes written.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ballast/convert.h>

#include "base/bytes.h"
#include "convert/reference.h"

namespace {

using ballast::DType;

constexpr std::size_t kLargestBuffer = std::size_t{256} << 20;

// What is measured: memcpy where the dtypes are the same.
struct Row {
  DType from;
  DType to;
  std::vector<double> rates;  // bytes per second, one for each repetition

  std::size_t count() const { return kLargestBuffer * 8 / std::max(bits(from), bits(to)); }
  std::size_t in_size() const { return count() * bits(from) / 8; }
  std::size_t out_size() const { return count() * bits(to) / 8; }
  std::string title() const { return from == to ? "memcpy" : fmt::format("{} to {}", name(from), name(to)); }

  double best() const { return std::ranges::max(rates); }
  double median() const {
    std::vector<double> sorted = rates;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

std::vector<Row> make_rows() {
  using enum DType;
  constexpr std::array<std::pair<DType, DType>, 18> kPairs{{{kF32, kF32},
                                                            {kBF16, kF32},
                                                            {kF16, kF32},
                                                            {kF32, kBF16},
                                                            {kF32, kF16},
                                                            {kBF16, kF16},
                                                            {kF16, kBF16},
                                                            {kF8E4M3, kF32},
                                                            {kF8E4M3, kBF16},
                                                            {kF8E5M2, kF32},
                                                            {kF32, kF8E4M3},
                                                            {kBF16, kF8E4M3},
                                                            {kF32, kF8E5M2},
                                                            {kF4, kBF16},
                                                            {kF32, kF64},
                                                            {kF64, kF32},
                                                            {kI8, kF32},
                                                            {kF32, kI8}}};
  std::vector<Row> rows;
  for (const auto& [from, to] : kPairs) rows.push_back({.from = from, .to = to});
  return rows;
}

[[noreturn]] void die(const std::string& message) {
  fmt::print(stderr, "convert_bench: {}\n", message);
  std::exit(1);  // NOLINT(concurrency-mt-unsafe): there is one thread
}

// Random numbers below 2 for whatever dtype reads them; none is NaN.
void fill(std::span<std::byte> bytes) {
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = (random() & 0x83bf83bf83bf83bf) | 0x3c003c003c003c00;
    std::memcpy(&bytes[i], &word, sizeof(word));
  }
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void run(Row& row, std::span<const std::byte> in, std::span<std::byte> out) {
  const double before = seconds();
  if (row.from == row.to) {
    std::memcpy(out.data(), in.data(), in.size());
  } else if (const auto loss = convert_values(row.from, in, row.to, out); !loss) {
    die(loss.error().message);
  }
  row.rates.push_back(static_cast<double>(in.size() + out.size()) / (seconds() - before));
}

// Compares the first values, some in the middle and the last with the reference.
void check(const Row& row, std::span<const std::byte> in, std::span<const std::byte> out) {
  constexpr std::size_t kSample = 4096;
  for (const std::size_t begin : {std::size_t{0}, row.count() / 2 + 64, row.count() - kSample}) {
    std::vector<std::byte> expected(kSample * bits(row.to) / 8);
    convert_by_reference(row.from, in.subspan(begin * bits(row.from) / 8, kSample * bits(row.from) / 8), row.to, expected);
    if (!std::ranges::equal(out.subspan(begin * bits(row.to) / 8, expected.size()), expected)) {
      die(row.title() + ": wrong result");
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

void print_table(const std::vector<Row>& rows, int repetitions) {
  fmt::print("{}; one thread, median (best) of {}, taken in turns; the larger buffer {} MiB, touched before\n\n", machine(),
             repetitions, kLargestBuffer >> 20);
  fmt::print("{:<20}{:>9}{:>10}{:>18}{:>12}\n", "", "MiB in", "MiB out", "GB/s", "of memcpy");
  for (const Row& row : rows) {
    fmt::print("{:<20}{:>9}{:>10}{:>18}{:>12.2f}\n", row.title(), row.in_size() >> 20, row.out_size() >> 20,
               fmt::format("{:.1f} ({:.1f})", row.median() / 1e9, row.best() / 1e9), row.median() / rows[0].median());
  }
}

void print_json(const std::vector<Row>& rows, int repetitions) {
  nlohmann::json result{{"machine", machine()}, {"repetitions", repetitions}, {"rows", nlohmann::json::array()}};
  for (const Row& row : rows) {
    result["rows"].push_back({{"title", row.title()},
                              {"in_bytes", row.in_size()},
                              {"out_bytes", row.out_size()},
                              {"median_bytes_per_second", row.median()},
                              {"best_bytes_per_second", row.best()},
                              {"ratio", row.median() / rows[0].median()}});
  }
  fmt::print("{}\n", result.dump(2));
}

}  // namespace

int main(int argc, char** argv) {
  int repetitions = 15;
  bool as_json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json") {
      as_json = true;
    } else if (std::string_view(argv[i]) == "--repetitions" && i + 1 < argc) {
      repetitions = std::max(1, std::atoi(argv[++i]));
    } else {
      die("usage: convert_bench [--repetitions N] [--json]");
    }
  }
  const ballast::Bytes in_buffer(ballast::allocate_bytes(kLargestBuffer));
  const ballast::Bytes out_buffer(ballast::allocate_bytes(kLargestBuffer));
  fill({in_buffer.get(), kLargestBuffer});
  std::memset(out_buffer.get(), 1, kLargestBuffer);

  std::vector<Row> rows = make_rows();
  for (int i = 0; i <= repetitions; ++i) {
    for (Row& row : rows) {
      const std::span<const std::byte> in(in_buffer.get(), row.in_size());
      const std::span<std::byte> out(out_buffer.get(), row.out_size());
      run(row, in, out);
      if (i == 0) {
        check(row, in, out);
        row.rates.clear();
      }
    }
  }
  as_json ? print_json(rows, repetitions) : print_table(rows, repetitions);
}
