// Parses its input as data from a server: a Content-Range, a page of a file list of the Hugging Face Hub or S3, checksums, a URI.
// Accepted data must be consistent, stay inside its folder and show no password.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <ballast/text.h>

#include "check.h"
#include "source/remote/expected_checksum.h"
#include "source/remote/hub.h"
#include "source/remote/remote_file.h"
#include "source/remote/s3.h"
#include "source/uri.h"

namespace ballast {
namespace {

void check_range(std::string_view text) {
  const auto range = remote::parse_content_range(text);
  if (range) check(range->begin < range->end && range->end <= range->size);
}

void check_hub(const std::string& text) {
  const auto page = remote::parse_hub_page(text, "");
  if (!page) return check(!page.error().message.empty());
  const std::filesystem::path folder = "/model/folder/";
  for (const ListedFile& file : *page) {
    check((folder / file.name).lexically_normal().string().starts_with("/model/folder"));
    remote::expected_checksum(file, {});
  }
}

void check_s3(const std::string& text) {
  const auto page = remote::parse_s3_page(text, "a/");
  if (!page) return check(!page.error().message.empty());
  for (const ListedFile& file : page->files) check(!file.name.ends_with('/'));
}

void check_sums(std::string_view text) {
  const remote::Response response{.headers = {{"repr-digest", std::string(text)}, {"digest", std::string(text)}}};
  const auto sum = remote::expected_checksum({}, response);
  check(sum.kind.empty() ? sum.hex.empty() : remote::is_hex(sum.hex, 64));
}

void check_uri(const std::string& text) {
  if (!is_uri(text)) return;
  const std::string shown = without_secrets(text);
  check(without_secrets(shown) == shown);
  check(is_uri(join_path(text, "name")));
  uri_origin(resolve_reference(text, "../x?y"));
  uri_origin(resolve_reference("https://host/a/b", text));
  if (uri_scheme(text) != "hf") return;
  const auto location = remote::parse_hub_location(text);
  if (!location) return;
  const auto again = remote::parse_hub_location(location->uri());
  check(again && again->repo == location->repo && again->file == location->file);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'r': ballast::check_range(text); break;
    case 'h': ballast::check_hub(text); break;
    case 'x': ballast::check_s3(text); break;
    case 's': ballast::check_sums(text); break;
    default: ballast::check_uri(text); break;
  }
  return 0;
}
