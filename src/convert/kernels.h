#pragma once

#include <cstddef>
#include <cstdint>

#include <ballast/dtype.h>

namespace ballast {

// Streaming stores bypass the caches. They help if the output is larger than the caches and hurt if it is read again soon.
enum class Stores : std::uint8_t { kOrdinary, kStreaming };

// Convert floats of fewer than 32 bits to and from F32, with the best instruction set of the machine. Pointers need no alignment.
// For F4, `count` must be even. Any other dtype, including F32, aborts; convert_values() handles all of them.
void to_f32(DType from, const std::byte* in, std::size_t count, std::byte* out, Stores stores);
void from_f32(DType to, const std::byte* in, std::size_t count, std::byte* out, Stores stores);

// Orders streaming stores before later stores of this thread. Must be called before another thread reads the output.
void finish_streaming();

}  // namespace ballast
