#include "scheme/mlx/side_files.h"

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "source/path/path.h"
#include "source/uri.h"

namespace ballast {

bool is_side_file(std::string_view name) { return name == kTimeAware.file || name == kEqualization.file; }

Result<std::optional<Model>> open_side_file(const std::string& directory, const SideFileKind& kind) {
  if (directory.empty()) return std::nullopt;
  const std::string path = join_path(directory, kind.file);
  const auto is_there = exists(path);
  if (!is_there) return fail_at(shown(path), is_there.error());
  if (!*is_there) {
    const auto config = read_text(join_path(directory, kConfigFile));
    simdjson::dom::parser parser;
    const auto root = config ? parse_json(parser, *config) : std::unexpected(config.error());
    if (!root || (*root)[kind.member].error() != simdjson::SUCCESS) return std::nullopt;
    return fail(Errc::kCorrupt, "{}: is missing, but config.json tells of it", shown(path));
  }
  auto file = TRY(Model::open(path));
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kind.format) {
    return fail(Errc::kCorrupt, "{}: its format is not {}", shown(path), kind.format);
  }
  return file;
}

}  // namespace ballast
