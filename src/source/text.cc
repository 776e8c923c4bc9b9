#include "source/text.h"

#include "base/fail.h"
#include "base/try.h"

namespace ballast {

Result<std::string> read_text(const Source& source) {
  constexpr std::uint64_t kLargest = 100'000'000;
  if (source.size() > kLargest) {
    return fail(Errc::kCorrupt, "file of {} bytes exceeds the limit of {} bytes", source.size(), kLargest);
  }
  std::string text(source.size(), '\0');
  TRY(source.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::string> read_text_file(const std::string& path) {
  const auto source = TRY(open_file(path, Access::kPread));
  return read_text(*source);
}

}  // namespace ballast
