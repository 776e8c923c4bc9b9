// Answers each line of standard input with one line of JSON. Paths and names hold no white space.
//   open PATH          opens, and tells what is inside
//   lookup PATH        opens, then times finding every name once
//   read1k PATH NAME   opens, and reads the first KiB of a tensor
// `ns` is the time of the work alone, `rss` by how much it grew the resident set, `checksum` of what it found.

#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <nlohmann/json.hpp>

#include <ballast/model.h>

namespace {

using ballast::Model;
using ballast::TensorInfo;
using nlohmann::json;

// A reading of the clock and of memory, to tell what was spent since.
class Meter {
 public:
  Meter() : rss_(resident()), start_(std::chrono::steady_clock::now()) {}

  void stop() {
    ns_ = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start_).count();
    rss_ = resident() - rss_;
  }
  json with(json rest) const {
    rest.update({{"ns", ns_}, {"rss", rss_}});
    return rest;
  }

 private:
  static std::int64_t resident() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
    }
    return 0;
  }

  std::int64_t rss_;
  std::int64_t ns_ = 0;
  std::chrono::steady_clock::time_point start_;
};

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  std::size_t length = 0;
  EVP_Q_digest(nullptr, "SHA256", nullptr, bytes.data(), bytes.size(), digest.data(), &length);
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(length), ""));
}

// Of names, dtypes and shapes in the order of the data. As the data is packed, that says where everything lies.
std::string checksum(const Model& model) {
  std::string text;
  for (const TensorInfo& tensor : model.tensors()) {
    fmt::format_to(std::back_inserter(text), "{} {} {}\n", tensor.name, ballast::name(tensor.dtype), tensor.shape);
  }
  return sha256(text);
}

json open(const std::string& path) {
  Meter meter;
  const auto model = Model::open(path);
  meter.stop();
  if (!model) return meter.with({{"error", model.error().message}});
  return meter.with({{"tensors", model->tensors().size()}, {"checksum", checksum(*model)}});
}

json lookup(const std::string& path) {
  const auto model = Model::open(path);
  if (!model) return {{"error", model.error().message}};
  const std::size_t count = model->tensors().size();
  constexpr std::size_t kStride = 7919;  // visits all, in no order that a cache would like
  std::vector<std::string> names;
  names.reserve(count);
  for (std::size_t i = 0; i < count; ++i) names.emplace_back(model->tensors()[i * kStride % count].name);

  std::size_t found = 0;
  Meter meter;
  for (const std::string& name : names) found += model->has(name) ? 1 : 0;
  meter.stop();
  return meter.with({{"tensors", found}, {"checksum", checksum(*model)}});
}

json read1k(const std::string& path, const std::string& name) {
  std::string bytes(1024, '\0');
  Meter meter;
  const auto model = Model::open(path);
  if (!model) return meter.with({{"error", model.error().message}});
  const auto read = model->read_into(name, 0, std::as_writable_bytes(std::span(bytes)));
  meter.stop();
  if (!read) return {{"error", read.error().message}};
  return meter.with({{"tensors", model->tensors().size()}, {"checksum", sha256(bytes)}});
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    std::string path;
    std::string name;
    words >> command >> path >> name;
    json answer{{"error", "no such command"}};
    if (command == "open") answer = open(path);
    if (command == "lookup") answer = lookup(path);
    if (command == "read1k") answer = read1k(path, name);
    std::cout << answer << '\n' << std::flush;
  }
}
