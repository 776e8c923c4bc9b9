#include "sink/source_identity.h"

#include <filesystem>

#include <sys/stat.h>

#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"

namespace ballast {

Result<std::string> describe_files(const Model& model) {
  std::string text;
  for (const ModelFile& file : model.files()) {
    struct stat status{};
    if (::stat(file.path.c_str(), &status) != 0)
      return fail(Errc::kIo, "{}: cannot be found, and only work on files can be resumed", escape(file.path));
    text += fmt::format("{}\n{} {} {}.{}\n", file.path, file.size, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  return text;
}

std::string files_json(const Model& model) {
  std::string text = "[";
  for (const ModelFile& file : model.files()) {
    text += text.size() > 1 ? ", {\"name\": " : "{\"name\": ";
    append_json_string(escape(std::filesystem::path(file.path).filename().string()), text);
    text += fmt::format(", \"size\": {}}}", file.size);
  }
  return text + "]";
}

}  // namespace ballast
