#pragma once

#include <ballast/error.h>
#include <ballast/model.h>

#include "calibrate/forward/text_config.h"
#include "calibrate/forward/text_model.h"

namespace ballast {

// Sets the prefix and the output layer of a text model whose other members are known. kUnsupported if a decoder layer has a
// tensor that the forward pass would leave out; kCorrupt if it has no bias where the config promises one.
Result<void> find_names(TextModel& text, const Model& model, const TextConfig& config, bool is_tied);

}  // namespace ballast
