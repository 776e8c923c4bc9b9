#pragma once

namespace ballast {

// Stops the fuzzer where something that must hold does not. Inlined, so that the report points at the caller's line.
[[gnu::always_inline]] inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace ballast
