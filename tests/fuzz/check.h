#pragma once

namespace ballast {

// Aborts if the condition is false. Inlined, so that the report shows the caller's line.
[[gnu::always_inline]] inline void check(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace ballast
