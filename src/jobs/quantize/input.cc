#include "jobs/quantize/input.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"
#include "model/adapter.h"
#include "model/layer_names.h"
#include "model/state.h"
#include "plan/type_settings.h"
#include "scheme/foreign.h"

namespace ballast {
namespace {

constexpr unsigned kUnquantized = 16;  // in layer_bit_widths

// Threads and memory limit of this call override those of the config, and so do the numbers that the type fixes.
QuantizeOptions completed(QuantizeOptions options) {
  options.config = with_numbers_of_type(std::move(options.config));
  if (options.config.format != QuantizeFormat::kMlx && options.config.format != QuantizeFormat::kParquet) {
    options.config.enable_time_aware = false;  // no place for them
    options.config.enable_spatial = false;
  }
  if (options.work.threads != 0) options.config.num_threads = options.work.threads;
  if (options.work.memory_limit != 0) options.config.max_memory_limit = options.work.memory_limit;
  return options;
}

// Adds the names to those that are left unquantized, and refuses bits that are set for one of them.
Result<void> leave_unquantized(const std::vector<std::string>& names, QuantizeConfig& config) {
  for (const std::string& name : names) {
    for (const std::string_view spelling : {std::string_view(name), layer_of(name)}) {
      const auto width = config.layer_bit_widths.find(std::string(spelling));
      if (width == config.layer_bit_widths.end() || width->second == kUnquantized) continue;
      return fail(Errc::kInvalidArgument,
                  "layer_bit_widths: mlx-lm cannot hold tensor {} quantized; leave it out or set it to 16", quote(name));
    }
    const bool is_named = std::ranges::find(config.sensitive_layer_names, name) != config.sensitive_layer_names.end();
    if (!is_named) config.sensitive_layer_names.push_back(name);
  }
  return {};
}

// The matrices of an adapter are small, and the errors of both add up in their product.
Result<void> refuse_adapter(const Model& model) {
  const auto evidence = TRY(find_adapter(model));
  if (!evidence) return {};
  return fail(Errc::kUnsupported, "{}: an adapter (LoRA), not a model ({}); quantize the model that it belongs to",
              escape(model.path()), *evidence);
}

}  // namespace

std::vector<std::string> QuantizeInput::notes() const {
  const auto& decoded = ModelAccess::decoded(source);
  std::vector<std::string> all = decoded ? decoded->notes : std::vector<std::string>();
  all.insert(all.end(), arrangement.notes.begin(), arrangement.notes.end());
  return all;
}

Result<QuantizeInput> make_input(const Model& source, const QuantizeOptions& options) {
  TRY(validate(options.config));
  TRY(refuse_adapter(source));
  TRY(refuse_codes(source));
  QuantizeInput input{.source = source, .arrangement = {}, .options = completed(options)};
  if (options.config.format != QuantizeFormat::kMlx) return input;
  input.arrangement = TRY(arrange_for_mlx_lm(source));
  auto kept = leave_unquantized(input.arrangement.unquantized, input.options.config);
  if (!kept) return fail_at(escape(source.path()), kept.error());
  return input;
}

}  // namespace ballast
