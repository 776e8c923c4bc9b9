#pragma once

#include <cstdint>
#include <vector>

#include <hwy/targets.h>

namespace ballast::test {

// The instruction sets of this machine and the portable fallback.
inline std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> targets{HWY_EMU128};
  for (std::int64_t rest = hwy::SupportedTargets() & (HWY_EMU128 - 1); rest != 0; rest &= rest - 1)
    targets.push_back(rest & -rest);
  return targets;
}

// Makes Highway use one instruction set while it lives.
class OnlyInstructionSet {
 public:
  explicit OnlyInstructionSet(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  OnlyInstructionSet(const OnlyInstructionSet&) = delete;
  OnlyInstructionSet& operator=(const OnlyInstructionSet&) = delete;
  ~OnlyInstructionSet() { hwy::SetSupportedTargetsForTest(0); }
};

}  // namespace ballast::test
