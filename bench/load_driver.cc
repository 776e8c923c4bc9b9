// Loads one model into owned memory and tells how long that took, for load_vs_peers.py.
//   load_driver [auto|buffered|direct [THREADS]]
// Says "ready", takes a path from standard input, and answers with one line of JSON: `ns` from opening to owned bytes, `checksum`
// of names and bytes in the order of names.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <nlohmann/json.hpp>

#include <ballast/model.h>

namespace {

using ballast::LoadedModel;
using ballast::LoadOptions;
using ballast::LoadPath;
using ballast::Model;
using nlohmann::json;

// Touches and frees memory in small and in huge pages, of which a load takes either: after a pause, a virtual machine has to get
// pages back from its host, which would be timed too.
void wake_memory(std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  std::array<void*, 2> regions{};
  for (void*& region : regions) {
    region = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED) throw std::bad_alloc();
    ::madvise(region, bytes, &region == regions.data() ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    for (std::size_t at = 0; at < bytes; at += kPage) static_cast<volatile char*>(region)[at] = 1;
  }
  for (void* const region : regions) ::munmap(region, bytes);
}

std::string checksum(const LoadedModel& model) {
  std::map<std::string_view, std::span<const std::byte>> by_name;
  for (const ballast::TensorView& tensor : model.tensors()) by_name.emplace(tensor.name, tensor.bytes);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  for (const auto& [name, bytes] : by_name) {
    EVP_DigestUpdate(context.get(), name.data(), name.size());
    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(length), ""));
}

json load(const std::string& path, const LoadOptions& options) {
  const auto sized = Model::open(path);
  if (!sized) return {{"error", sized.error().message}};
  wake_memory(sized->data_bytes() / 4 * 5);

  const auto start = std::chrono::steady_clock::now();
  const auto model = Model::open(path);
  if (!model) return {{"error", model.error().message}};
  const auto loaded = model->load_all(options);
  const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
  if (!loaded) return {{"error", loaded.error().message}};
  return {{"ns", spent.count()}, {"tensors", loaded->tensors().size()}, {"checksum", checksum(*loaded)}};
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string_view, LoadPath> paths{
      {"auto", LoadPath::kAuto}, {"buffered", LoadPath::kBuffered}, {"direct", LoadPath::kDirect}};
  LoadOptions options;
  if (count > 1) options.path = paths.at(arguments[1]);
  if (count > 2) options.work.threads = static_cast<unsigned>(std::stoul(arguments[2]));
  std::cout << "ready" << '\n' << std::flush;
  std::string path;
  std::getline(std::cin, path);
  std::cout << load(path, options) << '\n' << std::flush;
}
