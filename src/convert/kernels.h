#pragma once

#include <cstddef>
#include <cstdint>

#include <ballast/dtype.h>

namespace ballast {

// Streaming stores go past the caches: right for output that is larger than these, wrong for what is read again at once.
enum class Stores : std::uint8_t { kOrdinary, kStreaming };

// Floats of fewer than 32 bits, from and to F32, with the best instruction set that the machine has. Pointers need no alignment;
// a `count` of F4 values is even. Any other dtype, F32 included, ends the program; convert_values() takes all of them.
void to_f32(DType from, const std::byte* in, std::size_t count, std::byte* out, Stores stores);
void from_f32(DType to, const std::byte* in, std::size_t count, std::byte* out, Stores stores);

// Orders streaming stores before what this thread stores next: due before another thread may look.
void finish_streaming();

}  // namespace ballast
