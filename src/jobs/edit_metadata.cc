#include <ballast/edit_metadata.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/file_descriptor.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "base/text.h"
#include "base/try.h"
#include "format/names.h"
#include "format/safetensors/header.h"
#include "format/safetensors/layout.h"
#include "model/state.h"
#include "output/file.h"
#include "output/output.h"

namespace ballast {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kKey = "\"__metadata__\":";

// The bytes of a header's metadata: the entry without the comma that follows it.
struct Entry {
  std::size_t begin;
  std::size_t end;
};

bool is_metadata_key(std::string_view token) {
  if (token == kKey.substr(0, kKey.size() - 1)) return true;
  if (token.find('\\') == std::string_view::npos) return false;
  simdjson::dom::parser parser;
  const auto decoded = parse_json(parser, token);
  std::string_view text;
  return decoded && decoded->get(text) == simdjson::SUCCESS && text == "__metadata__";
}

std::optional<Entry> find_metadata(std::string_view json) {
  JsonWalk walk(json);
  std::optional<Entry> entry;
  for (JsonWalk::Token token{}; walk.next(token);) {
    if (entry && walk.depth() == 1) {
      entry->end = token.end;
      return entry;
    }
    if (!entry && walk.depth() == 1 && token.kind == JsonWalk::Kind::kKey &&
        is_metadata_key(json.substr(token.begin, token.end - token.begin))) {
      entry = {.begin = token.begin, .end = token.end};
    }
  }
  return std::nullopt;
}

// The header's JSON with new metadata, without trailing space. The text after the metadata keeps its position if possible.
std::string with_metadata(std::string_view json, const Metadata& metadata) {
  json = json.substr(0, json.find_last_not_of(kSpace) + 1);
  const auto entry = find_metadata(json);
  const std::size_t start = entry ? entry->begin : json.find('{') + 1;
  std::size_t rest = entry ? entry->end : start;
  std::string text = metadata.empty() ? std::string() : std::string(kKey) + safetensors::metadata_json(metadata);
  std::string before(json.substr(0, start));

  const std::size_t next = json.find_first_not_of(kSpace, rest);
  if (text.empty() && json[next] == ',') {
    rest = next + 1;
  } else if (text.empty()) {
    // Removes the last entry and the comma before it.
    if (const std::size_t last = before.find_last_not_of(kSpace); before[last] == ',') before[last] = ' ';
  } else if (!entry && json[next] != '}') {
    text += ',';
  }
  const std::size_t room = rest - start;
  if (text.size() < room) text.append(room - text.size(), ' ');
  return before + text + std::string(json.substr(rest));
}

Result<Metadata> apply(const MetadataEdit& edit, Metadata metadata) {
  for (const std::string& key : edit.unset) {
    if (metadata.erase(key) == 0) return fail(Errc::kInvalidArgument, "no metadata key {} to unset", quote(key));
  }
  for (const auto& [key, value] : edit.set) metadata[key] = value;
  TRY(check_names({}, metadata));
  return metadata;
}

// Overwrites the bytes in which `header` differs from `old`, all of them in one page.
Result<void> overwrite(const std::string& path, std::string_view old, std::string_view header, bool& done) {
  constexpr std::size_t kPage = 4096;
  const auto differs = std::ranges::mismatch(old, header);
  const auto first = static_cast<std::size_t>(differs.in1 - old.begin());
  std::size_t end = header.size();
  while (end > first && old[end - 1] == header[end - 1]) --end;
  if (first / kPage != (end - 1) / kPage) return {};

  const auto fail_here = [&](std::string_view what) { return fail_errno(Errc::kWrite, errno, "{}: {}", escape(path), what); };
  const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return fail_here("cannot write");
  std::string now(old.size(), '\0');
  if (::pread(fd.get(), now.data(), now.size(), 0) != static_cast<ssize_t>(now.size()) || now != old) {
    return fail(Errc::kIo, "{}: another process changed the file", escape(path));
  }
  if (::pwrite(fd.get(), header.data() + first, end - first, static_cast<off_t>(first)) < 0)
    return fail_here("writing the header");
  if (::fsync(fd.get()) != 0) return fail_here("cannot sync");
  done = true;
  return {};
}

Result<void> rewrite(const std::string& path, const Source& source, std::string_view header, std::uint64_t data_start,
                     const WorkOptions& work) {
  auto file = TRY(OutputFile::create(path));
  const std::uint64_t bytes = source.size() - data_start;
  TRY(file.reserve(header.size() + bytes));
  TRY(file.write_at(0, as_bytes(header)));
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
  for (std::uint64_t at = 0; at < bytes; at += kPiece) {
    const std::uint64_t length = std::min(kPiece, bytes - at);
    auto copied = file.copy_from(source, data_start + at, header.size() + at, length);
    if (!copied) return copied.error().code == Errc::kWrite ? copied : fail_at(escape(path), copied.error());
    if (!report(work, at + length, bytes, {})) return fail(Errc::kCancelled, "cancelled");
  }
  TRY(file.sync());
  TRY(file.publish());
  return sync_folder(folder_of(file.path()));
}

// A change in place would reach every other name of the file, and a replacement would leave them with the old one.
Result<void> check_not_linked(const std::string& path) {
  TRY(check_not_cached(path));
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return {};
  const std::string real = std::filesystem::weakly_canonical(path, error).string();
  return fail(Errc::kInvalidArgument, "{}: a symbolic link; give the path of the file itself, {}", escape(path), escape(real));
}

}  // namespace

Result<MetadataChange> edit_metadata(const std::string& path, const MetadataEdit& edit, const OpenOptions& options,
                                     const WorkOptions& work) {
  TRY(check_output_path(path));
  TRY(check_not_linked(path));
  const auto model = TRY(Model::open(path, options));
  if (!model.directory().empty() || model.format() != Format::kSafetensors) {
    return fail(Errc::kInvalidArgument, "{}: can edit the metadata of a .safetensors file only, one at a time", escape(path));
  }
  const auto metadata = apply(edit, model.metadata());
  if (!metadata) return fail_at(escape(path), metadata.error());
  if (*metadata == model.metadata()) return MetadataChange::kNone;

  const Source& source = ModelAccess::source(model, 0);
  const std::uint64_t data_start = model.files()[0].data_start;
  std::string old(data_start, '\0');
  if (auto read = source.read_at(0, std::as_writable_bytes(std::span(old))); !read) return fail_at(escape(path), read.error());

  std::string header = old.substr(0, safetensors::kLengthBytes) +
                       with_metadata(std::string_view(old).substr(safetensors::kLengthBytes), *metadata);
  if (header.size() <= old.size()) {
    header.append(old.size() - header.size(), ' ');
    bool done = false;
    TRY(overwrite(path, old, header, done));
    if (done) return MetadataChange::kInPlace;
  }
  constexpr std::size_t kAlignment = 8;
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  const std::uint64_t length = header.size() - safetensors::kLengthBytes;
  std::memcpy(header.data(), &length, sizeof(length));
  if (length > options.max_header_bytes) {
    return fail(Errc::kWrite, "{}: the header would have {} bytes, readers accept {}", escape(path), length,
                options.max_header_bytes);
  }
  TRY(rewrite(path, source, header, data_start, work));
  return MetadataChange::kRewritten;
}

}  // namespace ballast
