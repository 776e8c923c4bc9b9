#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include <ballast/error.h>

#include "source/source.h"

struct evp_md_ctx_st;

namespace ballast {

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  std::string hex();  // the digest of all added bytes, in hexadecimal; may be called once

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

// The SHA-256 of all bytes, in hexadecimal. Calls `advance` after every block; it returns false to cancel.
Result<std::string> sha256(const Source& source, const std::function<bool(std::uint64_t bytes)>& advance = {});

}  // namespace ballast
