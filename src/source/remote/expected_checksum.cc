#include "source/remote/expected_checksum.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/try.h"
#include "source/sha256.h"
#include "source/source.h"

namespace ballast::remote {
namespace {

constexpr std::size_t kBase64 = 44;  // length of a SHA-256 in Base64

std::string hex_of_base64(std::string_view text) {
  std::array<unsigned char, 33> bytes{};
  if (text.size() != kBase64) return {};
  if (EVP_DecodeBlock(bytes.data(), reinterpret_cast<const unsigned char*>(text.data()), kBase64) != 33) return {};
  std::string hex;
  for (std::size_t i = 0; i < 32; ++i) hex += fmt::format("{:02x}", bytes[i]);
  return hex;
}

// The Base64 text after `name`, which is matched without regard to case, in a header that may contain several checksums.
std::string_view find_checksum(std::string_view header, std::string_view name) {
  const auto is_same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; };
  const auto found = std::ranges::search(header, name, is_same);
  return found.empty() ? std::string_view() : std::string_view(found.end(), header.end()).substr(0, kBase64);
}

// The SHA-1 that git uses as the object name of a file's content.
Result<std::string> git_checksum(const Source& source) {
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  const std::string head = fmt::format("blob {}", source.size());
  EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr);
  EVP_DigestUpdate(context.get(), head.c_str(), head.size() + 1);
  std::vector<std::byte> block(kBlock);
  for (std::uint64_t at = 0; at < source.size(); at += block.size()) {
    const std::span part(block.data(), std::min<std::uint64_t>(block.size(), source.size() - at));
    TRY(source.read_at(at, part));
    EVP_DigestUpdate(context.get(), part.data(), part.size());
  }
  std::array<unsigned char, 20> digest{};
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

ExpectedChecksum expected_checksum(const ListedFile& listed, const Response& response) {
  if (is_hex(listed.sha256, 64)) return {.kind = "sha256", .hex = listed.sha256};
  for (const char* const header : {"x-linked-etag", "etag"}) {
    std::string_view etag = response.find(header).value_or("");
    if (etag.starts_with('"') && etag.ends_with('"') && etag.size() > 1) etag = etag.substr(1, etag.size() - 2);
    if (is_hex(etag, 64)) return {.kind = "sha256", .hex = std::string(etag)};
  }
  // For multipart uploads S3 sends a checksum of checksums, which is longer and therefore ignored here.
  for (const std::string_view base64 :
       {find_checksum(response.find("repr-digest").value_or(""), "sha-256=:"),
        find_checksum(response.find("digest").value_or(""), "sha-256="), response.find("x-amz-checksum-sha256").value_or("")}) {
    if (std::string hex = hex_of_base64(base64); !hex.empty()) return {.kind = "sha256", .hex = std::move(hex)};
  }
  if (is_hex(listed.etag, 40)) return {.kind = "git", .hex = listed.etag};
  return {};
}

Result<std::string> checksum_of(const std::string& path, const std::string& kind) {
  const auto source = TRY(open_file(path, Access::kPread));
  return kind == "git" ? git_checksum(*source) : sha256(*source);
}

}  // namespace ballast::remote
