#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <napi.h>

#include <ballast/dtype.h>

namespace ballast::node {

// Whether a typed array for `dtype` may start at this address.
bool is_aligned(const std::byte* bytes, DType dtype);

// An ArrayBuffer over memory that `owner` keeps alive. JavaScript has no read-only arrays: the memory must be writable.
Napi::Value external_buffer(Napi::Env env, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

// Asks for huge pages. They make filling, and later unmapping, a large buffer much faster; the event loop waits for the page
// tables meanwhile if it needs memory itself.
void advise_huge_pages(std::span<std::byte> memory);

}  // namespace ballast::node
