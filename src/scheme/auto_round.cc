#include "scheme/auto_round.h"

#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast {
namespace {

struct PackingName {
  std::string_view name;
  AutoRoundPacking packing;
};
constexpr std::array kPackings{
    PackingName{.name = "auto_round:auto_gptq", .packing = AutoRoundPacking::kGptq},
    PackingName{.name = "auto_round:gptq", .packing = AutoRoundPacking::kGptq},
    PackingName{.name = "auto_gptq", .packing = AutoRoundPacking::kGptq},
    PackingName{.name = "auto", .packing = AutoRoundPacking::kGptq},
    PackingName{.name = "auto_round", .packing = AutoRoundPacking::kGptqV2},
    PackingName{.name = "auto_round:gptqmodel", .packing = AutoRoundPacking::kGptqV2},
    PackingName{.name = "auto_round:auto_awq", .packing = AutoRoundPacking::kAwq},
    PackingName{.name = "auto_round:awq", .packing = AutoRoundPacking::kAwq},
    PackingName{.name = "auto_awq", .packing = AutoRoundPacking::kAwq},
};

}  // namespace

bool is_auto_round(std::string_view method) {
  return method == "auto-round" || method == "auto_round" || method == "intel/auto-round";
}

Result<AutoRoundPacking> auto_round_packing(const Section& section) {
  constexpr std::string_view kKey = "packing_format";
  const auto name = TRY(section.text(kKey));
  if (!name) return section.wrong(kKey, "auto_round:auto_gptq, auto_round:auto_awq or auto_round");
  const auto found = std::ranges::find(kPackings, lowercase(*name), &PackingName::name);
  if (found != kPackings.end()) return found->packing;
  return fail(Errc::kUnsupported,
              "{}: packing_format is '{}', which Ballast cannot decode; it decodes auto_round:auto_gptq, auto_round:auto_awq and "
              "auto_round",
              section.place(), escape(*name));
}

}  // namespace ballast
