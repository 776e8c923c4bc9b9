#include "model/shards.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <unordered_map>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/text.h"
#include "format/mlx_json/document.h"
#include "format/mlx_json/values_source.h"
#include "format/safetensors/header.h"
#include "source/path/path.h"
#include "source/remote/remote_source.h"
#include "source/uri.h"

namespace ballast {
namespace {

std::string name_of(const std::string& path) { return escape(file_name(path)); }

JoinedTables join_tables(std::span<const Shard> shards) {
  JoinedTables joined;
  std::size_t count = 0;
  for (const Shard& shard : shards) count += shard.header.tensors.size();
  joined.tensors.reserve(count);
  for (std::uint32_t file = 0; file < shards.size(); ++file) {
    for (TensorInfo tensor : shards[file].header.tensors) {
      tensor.file = file;
      joined.tensors.push_back(tensor);
    }
  }
  joined.index = NameIndex(count);
  return joined;
}

void check_total_size(std::span<const Shard> shards, const safetensors::ShardIndex& index, const std::string& index_path,
                      std::vector<std::string>& warnings) {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards) bytes += shard.source->size() - shard.header.data_start;
  if (index.total_size && *index.total_size != bytes) {
    warnings.push_back(
        fmt::format("{}: total_size is {}, but the shards have {} bytes", shown(index_path), *index.total_size, bytes));
  }
}

Result<Shard> read_mlx_json(std::string path, std::unique_ptr<Source> text, const OpenOptions& options) {
  auto document = mlx_json::read_document(*text, {.max_table_bytes = options.max_header_bytes});
  if (!document) return fail_at(shown(path), document.error());
  Shard shard{
      .path = std::move(path), .format = Format::kMlxJson, .file_size = text->size(), .header = std::move(document->table)};
  shard.source = mlx_json::open_values(std::move(text), std::move(*document));
  return shard;
}

bool is_broken_link(const std::string& path) {
  std::error_code ignored;
  return !is_uri(path) && std::filesystem::is_symlink(path, ignored) && !std::filesystem::exists(path, ignored);
}

Result<Shard> open_shard(const std::string& path, const std::string& index_path, const OpenOptions& options) {
  auto source = open_path(path, read_options(options));
  if (!source && source.error().code == Errc::kNotFound && !index_path.empty()) {
    return fail(Errc::kNotFound, "{}: shard '{}' is missing; download it", shown(index_path), name_of(path));
  }
  if (!source && is_broken_link(path)) {
    return fail(Errc::kNotFound, "{}: a link to a file that does not exist; download the model again", shown(path));
  }
  if (!source) return fail_at(shown(path), source.error());
  return read_shard(path, std::move(*source), options);
}

Shard make_shard(std::string path, std::unique_ptr<Source> source, Bytes front, safetensors::Header header) {
  const std::uint64_t file_size = source->size();
  return {.path = std::move(path),
          .format = Format::kSafetensors,
          .file_size = file_size,
          .source = std::move(source),
          .front = std::move(front),
          .header = std::move(header)};
}

}  // namespace

Result<Shard> read_shard(std::string path, std::unique_ptr<Source> source, const OpenOptions& options) {
  if (file_name(path).ends_with(".mlx")) return read_mlx_json(std::move(path), std::move(source), options);
  constexpr std::uint64_t kFirstRead = 16 << 10;  // more would cost page faults; the rest of a longer header takes one more read
  constexpr std::uint64_t kWholeRead = 4 << 20;   // longer headers are parsed in pieces to save memory
  const safetensors::HeaderOptions limits{
      .strictness = options.strictness, .max_header_bytes = options.max_header_bytes, .path = path};
  const auto error_here = [&](const Error& error) { return fail_at(shown(path), error); };

  std::uint64_t have = std::min(source->size(), kFirstRead);
  Bytes front(allocate_bytes(have));
  if (auto read = source->read_at(0, {front.get(), have}); !read) return error_here(read.error());
  const auto data_start = safetensors::read_data_start({front.get(), have}, source->size(), limits);
  if (!data_start) return error_here(data_start.error());

  if (*data_start > kWholeRead && !is_uri(path)) {  // on a server, every piece would be a request
    auto header = safetensors::read_header(*source, *data_start, limits);
    if (!header) return error_here(header.error());
    if (*header) return make_shard(std::move(path), std::move(source), nullptr, std::move(**header));
  }
  if (*data_start > have) {
    Bytes whole(allocate_bytes(*data_start));
    std::memcpy(whole.get(), front.get(), have);
    if (auto read = source->read_at(have, {whole.get() + have, *data_start - have}); !read) return error_here(read.error());
    front = std::move(whole);
    have = *data_start;
  }
  auto header = safetensors::parse_header({front.get(), have}, source->size(), limits);
  if (!header) return error_here(header.error());
  return make_shard(std::move(path), std::move(source), std::move(front), std::move(*header));
}

std::vector<Result<Shard>> open_shards(std::span<const std::string> paths, const std::string& index_path,
                                       const OpenOptions& options) {
  std::vector<Result<Shard>> shards(paths.size());
  const bool are_remote = !paths.empty() && is_uri(paths.front());
  parallel_for(paths.size(), are_remote ? remote::kConnections : 1, [&](unsigned, std::size_t i) {
    shards[i] = open_shard(paths[i], index_path, options);
    return true;
  });
  return shards;
}

ShardReport check_shards(std::span<const Shard> shards, const safetensors::ShardIndex* index, const std::string& index_path) {
  ShardReport report;
  if (shards.size() < 2 && index == nullptr) return report;
  report.joined = join_tables(shards);
  const std::span<const TensorInfo> tensors = report.joined.tensors;
  const auto shard_of = [&](std::uint32_t position) -> const Shard& { return shards[tensors[position].file]; };
  const auto duplicates = report.joined.index.insert_first(tensors);
  for (const auto& [first, second] : duplicates) {
    report.contradictions.push_back(Error{.code = Errc::kCorrupt,
                                          .message = fmt::format("{}: tensor {} is also in {}", shown(shard_of(second).path),
                                                                 quote(tensors[second].name), name_of(shard_of(first).path))});
  }
  if (index == nullptr) return report;

  const std::string folder = parent_path(index_path);
  std::unordered_map<std::string_view, const Shard*> by_path;
  for (const Shard& shard : shards) by_path.emplace(shard.path, &shard);
  std::vector<bool> listed(tensors.size());
  bool all_open = true;
  for (const auto& [tensor, shard_name] : index->entries) {
    const auto position = report.joined.index.find(tensors, tensor);
    if (position) listed[*position] = true;
    const auto claimed = by_path.find(join_path(folder, shard_name));
    all_open = all_open && claimed != by_path.end();
    if (claimed == by_path.end() || (position && &shard_of(*position) == claimed->second)) continue;
    if (claimed->second->header.index.find(claimed->second->header.tensors, tensor)) continue;
    const std::string truth = position ? "it is in " + name_of(shard_of(*position).path) : "no shard of the index contains it";
    report.contradictions.push_back(Error{.code = Errc::kCorrupt,
                                          .message = fmt::format("{}: tensor {} should be in {}, but {}", shown(index_path),
                                                                 quote(tensor), escape(shard_name), truth)});
  }
  for (const auto& [first, second] : duplicates) listed[second] = listed[first];
  std::uint64_t unlisted = 0;
  std::string first_unlisted;
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    if (listed[i] || unlisted++ > 0) continue;
    first_unlisted = fmt::format("{} of {}", quote(tensors[i].name), name_of(shard_of(i).path));
  }
  if (unlisted > 0) {
    report.warnings.push_back(fmt::format("{}: tensor {} is not in the index{}", shown(index_path), first_unlisted,
                                          unlisted > 1 ? fmt::format(" (and {} more)", unlisted - 1) : ""));
  }
  if (all_open) check_total_size(shards, *index, index_path, report.warnings);
  return report;
}

}  // namespace ballast
