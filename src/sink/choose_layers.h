#pragma once

#include "sink/layer_coder.h"

namespace ballast {

// What is decided about layers by trying it on them, before anything is written.

// Gives layers that would be worse than they may be more bits, or with fail_fast gives up. What a sample shows to be good enough
// by far is not looked at closer; should it not be, the figures at the end tell.
Result<void> raise_bits(QuantizeWork& work, const LayerCoder& coder, unsigned threads);

// Gives every layer whose bits the user did not name as many as make the most of the size asked for.
Result<void> fit_size(QuantizeWork& work, const LayerCoder& coder);

// Scales the columns of layers where that lowers the error of their outputs.
Result<void> equalize_layers(QuantizeWork& work, const LayerCoder& coder, unsigned threads);

// That a layer is not good enough, at the bits it has.
std::unexpected<Error> below_minimum(const QuantizeWork& work, const LayerCoder& coder, std::size_t tensor, double cosine);

}  // namespace ballast
