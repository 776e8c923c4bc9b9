#pragma once

#include <memory>

#include "jobs/lora/adapter.h"
#include "scheme/decoded_source.h"

namespace ballast {

// Keeps the matrices of the last pairs that were read: those of one weight are needed for each of its blocks.
class LoraCache;
std::shared_ptr<LoraCache> make_lora_cache();

// Adds scale · B·A to the values of a weight: in F32, every product rounded, then added, in order of the rank. `is_transposed`:
// the weight is stored as [in, out]. `columns`: of the weight as a matrix.
std::unique_ptr<const ValueChange> low_rank_change(std::shared_ptr<const LoraAdapter> adapter, const LoraPair& pair,
                                                   bool is_transposed, std::uint64_t columns, std::shared_ptr<LoraCache> cache);

// Replaces the values of a weight with those of a tensor of the adapter.
std::unique_ptr<const ValueChange> replacing_change(std::shared_ptr<const LoraAdapter> adapter, const TensorInfo& tensor);

}  // namespace ballast
