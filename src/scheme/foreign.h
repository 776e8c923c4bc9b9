#pragma once

#include <optional>
#include <set>
#include <string>

#include <ballast/error.h>
#include <ballast/model.h>

namespace ballast {

// Evidence that a model's weights are stored in a way that no scheme here decodes.
struct ForeignQuantization {
  std::string scheme;    // gptq, awq, fp8, …, as its config calls it; "unknown" when only a name shows it
  std::string evidence;  // one line, escaped, that names the file or the tensor: "config.json: quant_method 'gptq'"
};

// Looks at the config, the files beside the weights and the tensors' names; reads no values. Empty for a plain model and for what
// a scheme decodes. Of a server it asks for files beside the weights only if some tensor may hold codes and nothing else decides.
Result<std::optional<ForeignQuantization>> find_foreign(const Model& model);

// kUnsupported, with the evidence, for a model in which find_foreign() finds something.
Result<void> refuse_foreign(const Model& model);

// kUnsupported if a tensor that no layer claimed looks like part of a quantized weight.
Result<void> refuse_leftovers(const Model& model, const std::set<const TensorInfo*>& claimed);

// kUnsupported for a model whose tensors are codes, in any way known or unknown: their values mean nothing alone. A model that is
// decoded when it is read passes.
Result<void> refuse_codes(const Model& model);

}  // namespace ballast
