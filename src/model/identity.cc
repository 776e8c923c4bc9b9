#include "model/identity.h"

#include <sys/stat.h>

#include "base/fail.h"
#include "base/file_names.h"
#include "base/json.h"
#include "base/text.h"
#include "model/state.h"
#include "source/uri.h"

namespace ballast {

Result<std::string> describe_files(const Model& model) {
  std::string text;
  for (std::uint32_t i = 0; i < model.files().size(); ++i) {
    const ModelFile& file = model.files()[i];
    if (const std::string identity = ModelAccess::source(model, i).identity(); !identity.empty()) {
      text += fmt::format("{}\n{} {}\n", file.path, file.size, identity);
      continue;
    }
    if (is_uri(file.path)) {
      return fail(Errc::kUnsupported,
                  "{}: cannot resume: the server sends neither ETag nor Last-Modified, so changes to the file would go "
                  "unnoticed; download the model first",
                  escape(file.path));
    }
    struct stat status{};
    if (::stat(file.path.c_str(), &status) != 0)
      return fail(Errc::kIo, "{}: not found; only work on files can be resumed", escape(file.path));
    text += fmt::format("{}\n{} {} {}.{}\n", file.path, file.size, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
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
  const auto& decoded = ModelAccess::decoded(model);
  for (const ModelFile& file : decoded ? std::span<const ModelFile>(decoded->files) : model.files()) {
    text += text.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json_string(escape(file_name(file.path)), text);
    text += fmt::format(", \"size\": {}}}", file.size);
  }
  return text + "]";
}

}  // namespace ballast
