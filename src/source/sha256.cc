#include "source/sha256.h"

#include <array>
#include <memory>
#include <vector>

#include <openssl/evp.h>

#include "base/fail.h"

namespace ballast {

Result<std::string> sha256(const Source& source, const std::function<bool(std::uint64_t bytes)>& advance) {
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) return fail(Errc::kUnsupported, "no SHA-256 in this OpenSSL");

  std::vector<std::byte> buffer(std::min<std::uint64_t>(kBlock, source.size()));
  for (std::uint64_t at = 0; at < source.size(); at += buffer.size()) {
    const std::span block(buffer.data(), std::min<std::uint64_t>(buffer.size(), source.size() - at));
    if (auto read = source.read_at(at, block); !read) return std::unexpected(read.error());
    EVP_DigestUpdate(context.get(), block.data(), block.size());
    if (advance && !advance(block.size())) return fail(Errc::kCancelled, "cancelled");
  }

  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace ballast
