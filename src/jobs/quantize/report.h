#pragma once

#include <ballast/quantize.h>

namespace ballast {

// Fills in what follows from the layers: the figures of all together, bits per weight, and whether all are good enough.
void summarize_layers(QuantizeReport& report, double min_accuracy);

}  // namespace ballast
