// Parses its input as an index. Accepted shard names must stay inside the folder of the index.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>

#include "check.h"
#include "format/safetensors/index.h"

namespace ballast {
namespace {

void check_index(std::string_view text) {
  const auto index = safetensors::parse_index(text);
  if (!index) return check(!index.error().message.empty());
  check(!index->entries.empty());

  std::set<std::string_view> tensors;
  const std::filesystem::path folder = "/model/folder/";
  for (const auto& entry : index->entries) {
    check(tensors.insert(entry.tensor).second);
    check(entry.shard.find('\0') == std::string::npos);
    const std::string resolved = (folder / entry.shard).lexically_normal().string();
    check(resolved.starts_with(folder.string()) && resolved.ends_with(".safetensors"));
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::check_index({reinterpret_cast<const char*>(data), size});
  return 0;
}
