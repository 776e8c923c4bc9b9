#include "scheme/mlx/side_files.h"

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

bool is_side_file(std::string_view name) { return name == kTimeAware.file || name == kEqualization.file; }

Result<std::optional<Model>> open_side_file(const Model& model, const SideFileKind& kind) {
  const Folder* const folder = ModelAccess::folder(model);
  if (folder == nullptr) return std::nullopt;
  const std::string path = join_path(folder->path(), kind.file);
  if (!TRY(folder->has(kind.file))) {
    if (!model.config()) return std::nullopt;
    simdjson::dom::parser parser;
    const auto root = TRY(parse_json(parser, model.config()->json));
    if (root[kind.member].error() != simdjson::SUCCESS) return std::nullopt;
    return fail(Errc::kCorrupt, "{}: missing, but config.json refers to it", shown(path));
  }
  auto file = TRY(Model::open(path));
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kind.format) {
    return fail(Errc::kCorrupt, "{}: the format is not {}", shown(path), kind.format);
  }
  return file;
}

}  // namespace ballast
