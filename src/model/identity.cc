#include "model/identity.h"

#include <sys/stat.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

Result<std::string> describe_file(const ModelFile& file, const std::string& identity) {
  if (!identity.empty()) return fmt::format("{}\n{} {}\n", file.path, file.size, identity);
  if (is_uri(file.path)) {
    return fail(Errc::kUnsupported,
                "{}: cannot resume: the server sends neither ETag nor Last-Modified, so changes to the file would go "
                "unnoticed; download the model first",
                escape(file.path));
  }
  struct stat status{};
  if (::stat(file.path.c_str(), &status) != 0)
    return fail(Errc::kIo, "{}: not found; only work on files can be resumed", escape(file.path));
  return fmt::format("{}\n{} {} {}.{}\n", file.path, file.size, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

Result<std::string> describe_files(const Model& model) {
  std::string text;
  for (std::uint32_t i = 0; i < model.files().size(); ++i) {
    text += TRY(describe_file(model.files()[i], ModelAccess::source(model, i).identity()));
  }
  return text;
}

std::string stem_of_files(std::span<const std::string> files) {
  std::string stem;
  for (const std::string& file : files) {
    const std::string name = file_name(file);
    if (stem.empty()) stem = stem_of(name);
    if (stem != stem_of(name)) return std::string(kModelStem);
  }
  return stem.empty() ? std::string(kModelStem) : stem;
}

std::string files_json(const Model& model) {
  std::string text = "[";
  const auto add = [&](const ModelFile& file, const std::string& scale) {
    text += text.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json_string(escape(file_name(file.path)), text);
    text += fmt::format(", \"size\": {}{}}}", file.size, scale);
  };
  const auto& decoded = ModelAccess::decoded(model);
  for (const ModelFile& file : decoded ? std::span<const ModelFile>(decoded->files) : model.files()) add(file, "");
  if (!decoded) return text + "]";
  for (const MergedAdapter& adapter : decoded->adapters) {
    for (const ModelFile& file : adapter.files) add(file, fmt::format(", \"lora_scale\": {}", adapter.scale));
  }
  return text + "]";
}

}  // namespace ballast
