#include "model/read_config.h"

#include "base/fail.h"
#include "base/file_names.h"
#include "base/try.h"
#include "source/uri.h"

namespace ballast {

Result<std::optional<ModelConfig>> read_config(const Folder& folder) {
  const auto text = TRY(folder.read_text(kConfigFile));
  if (!text) return std::nullopt;
  auto config = parse_config(*text);
  if (!config) return fail_at(shown(join_path(folder.path(), kConfigFile)), config.error());
  if (!config->quantized) config->quantized = TRY(folder.has(kQuantizationConfigFile));
  return std::move(*config);
}

}  // namespace ballast
