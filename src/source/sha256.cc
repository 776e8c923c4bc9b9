#include "source/sha256.h"

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include <openssl/evp.h>

#include "base/fail.h"
#include "base/try.h"

namespace ballast {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
}

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

void Sha256::add(std::span<const std::byte> bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
  std::string text;
  for (unsigned i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

Result<std::string> sha256(const Source& source, const std::function<bool(std::uint64_t bytes)>& advance) {
  constexpr std::size_t kBlock = std::size_t{4} << 20;
  Sha256 hash;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kBlock, source.size()));
  const Extent all{.begin = 0, .end = source.size()};
  source.expect({&all, 1});
  for (std::uint64_t at = 0; at < source.size(); at += buffer.size()) {
    const std::span block(buffer.data(), std::min<std::uint64_t>(buffer.size(), source.size() - at));
    TRY(source.read_at(at, block));
    hash.add(block);
    if (advance && !advance(block.size())) return fail(Errc::kCancelled, "cancelled");
  }
  return hash.hex();
}

}  // namespace ballast
