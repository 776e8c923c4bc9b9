#include "jobs/pipeline/write_pipeline.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/ranges.h>
#include <sys/stat.h>

#include "base/block_loop.h"
#include "base/fail.h"
#include "base/file_names.h"
#include "base/similar_name.h"
#include "base/text.h"
#include "base/try.h"
#include "jobs/pipeline/other_files.h"
#include "output/file.h"
#include "output/output.h"
#include "output/tree.h"
#include "source/path/folder.h"
#include "source/uri.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRecords = ".finished";

bool has_variant(const Component& component, const std::string& variant) {
  return std::ranges::find(component.variants, variant) != component.variants.end();
}

// A component without the variant has its plain weights used, as diffusers does.
Result<void> choose_variants(PipelineInput& input, const OpenOptions& options) {
  std::set<std::string> all;
  for (const Component& component : input.components) all.insert(component.variants.begin(), component.variants.end());
  if (!options.variant.empty() && !all.contains(options.variant)) {
    SimilarName similar(options.variant);
    std::vector<std::string> named;
    for (const std::string& each : all) {
      if (each.empty()) continue;
      similar.offer(each);
      named.push_back(escape(each));
    }
    return fail(Errc::kNotFound, "{}: no component has weights of the variant {}; variants here: {}{}", shown(input.root),
                quote(options.variant), named.empty() ? "none" : fmt::format("{}", fmt::join(named, ", ")),
                did_you_mean(similar));
  }
  for (const Component& component : input.components) {
    OpenOptions& open = input.open.emplace_back(options);
    open.component.clear();
    if (options.variant.empty() || !component.has_weights || has_variant(component, options.variant)) continue;
    if (!has_variant(component, "")) continue;  // opening it reports the variants that it has
    open.variant.clear();
    input.warnings.push_back(fmt::format("{} has no weights of the variant {}; its plain weights are used",
                                         escape(component.name), quote(options.variant)));
  }
  return {};
}

Result<void> copy_file(const std::string& from, const std::string& to, const ReadOptions& options) {
  const auto source = open_path(from, {.access = Access::kPread, .stop = options.stop});
  if (!source) return fail_at(shown(from), source.error());
  OutputFile file = TRY(OutputFile::create(to));
  TRY(file.copy_from(**source, 0, 0, (*source)->size()));
  return file.publish();
}

Result<void> make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fail_errno(Errc::kWrite, error.value(), "{}: cannot create the directory", escape(path));
  return {};
}

// With its subfolders.
Result<void> copy_folder(const std::string& from, const std::string& to, const ReadOptions& options) {
  TRY(make_folder(to));
  const Folder folder(from, options);
  for (const ListedFile& file : TRY(folder.files())) {
    if (file.name.starts_with('.')) continue;
    const std::string source = join_path(from, file.name);
    const std::string target = fmt::format("{}/{}", to, file.name);
    TRY(file.is_regular ? copy_file(source, target, options) : copy_folder(source, target, options));
  }
  return {};
}

// The names at the top of the output.
struct TopLevel {
  std::vector<Companion> files;
  std::vector<std::string> names;  // of files and components
};

Result<TopLevel> plan_top_level(const PipelineInput& input) {
  const Folder root = TRY(Folder::list(input.root, read_options(input.open.front())));
  TopLevel top;
  for (const ListedFile& file : TRY(root.files())) {
    if (!file.is_regular || file.name.starts_with('.') || is_weights_name(file.name)) continue;
    top.files.push_back({.name = file.name, .path = join_path(input.root, file.name)});
  }
  for (const Companion& file : top.files) top.names.push_back(file.name);
  for (const Component& component : input.components) top.names.push_back(component.name);
  return top;
}

// What stays behind: weights in the root, which other programs use, and folders that are no components.
Result<std::vector<std::string>> find_left_out(const PipelineInput& input, const TopLevel& top) {
  std::vector<std::string> names;
  const Folder root(input.root, read_options(input.open.front()));
  for (const ListedFile& file : TRY(root.files())) {
    const bool is_copied = std::ranges::find(top.names, file.name) != top.names.end();
    if (!is_copied && !file.name.starts_with('.')) names.push_back(file.name);
  }
  return names;
}

// Whether one path is the other or below it.
bool overlap(const std::string& a, const std::string& b) {
  std::error_code error;
  const fs::path x = fs::weakly_canonical(a, error) / "";
  const fs::path y = fs::weakly_canonical(b, error) / "";
  return x.string().starts_with(y.string()) || y.string().starts_with(x.string());
}

WorkOptions named_work(const WorkOptions& work, const std::string& component) {
  WorkOptions named = work;
  if (!work.progress) return named;
  named.progress = [progress = work.progress, component](std::uint64_t done, std::uint64_t total, std::string_view what) {
    return progress(done, total, fmt::format("{}/{}", component, what));
  };
  return named;
}

// The writing of one pipeline.
class Writing {
 public:
  Writing(const PipelineInput& input, const PipelineWork& work, OutputTree tree)
      : input_(input), work_(work), tree_(std::move(tree)) {}

  Result<WrittenPipeline> run(const TopLevel& top, const WriteComponent& write) {
    WrittenPipeline written{.components = {}, .not_copied = TRY(find_left_out(input_, top)), .warnings = input_.warnings};
    if (!written.not_copied.empty()) {
      written.warnings.push_back(fmt::format("not part of the pipeline and not copied: {}",
                                             escape(fmt::format("{}", fmt::join(written.not_copied, ", ")))));
    }
    if (work_.resume) TRY(make_folder(fmt::format("{}/{}", tree_.path(), kRecords)));
    for (std::size_t i = 0; i < input_.components.size(); ++i) {
      auto done = input_.components[i].has_weights ? write(work_of(i)) : copy(i);
      if (!done) return std::unexpected(tree_.with_final_path(std::move(done.error())));
      written.components.push_back(std::move(*done));
    }
    // The last files, by which is_newer_than_sources() recognizes a complete output.
    for (const Companion& file : top.files) {
      auto copied = copy_file(file.path, fmt::format("{}/{}", tree_.path(), file.name), read_options(input_.open.front()));
      if (!copied) return std::unexpected(tree_.with_final_path(std::move(copied.error())));
    }
    std::vector<std::string> names = top.names;
    const auto others = TRY(work_.force ? find_others(input_, work_.out, top.names) : Result<std::vector<std::string>>());
    for (const std::string& other : others) {
      TRY(keep(join_path(work_.out, other), join_path(tree_.path(), other)));
      names.push_back(other);
    }
    TRY(tree_.commit(names, work_.sync));
    return written;
  }

 private:
  ComponentWork work_of(std::size_t i) const {
    const Component& component = input_.components[i];
    std::string out = fmt::format("{}/{}", tree_.path(), component.name);
    std::string final_out = tree_.final_path(out);
    return {.component = component,
            .open = input_.open[i],
            .out = std::move(out),
            .final_out = std::move(final_out),
            .record = work_.resume ? fmt::format("{}/{}/{}", tree_.path(), kRecords, component.name) : "",
            .work = named_work(work_.work, component.name)};
  }

  Result<ComponentReport> copy(std::size_t i) {
    const Component& component = input_.components[i];
    const std::string out = fmt::format("{}/{}", tree_.path(), component.name);
    std::error_code ignored;
    fs::remove_all(out, ignored);  // of an earlier run
    TRY(copy_folder(component.path, out, read_options(input_.open[i])));
    return ComponentReport{.name = component.name, .class_name = component.class_name};
  }

  const PipelineInput& input_;
  const PipelineWork& work_;
  OutputTree tree_;
};

// By ctime, which unlike mtime cannot be set back.
std::optional<std::pair<std::int64_t, std::int64_t>> changed_at(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return std::pair<std::int64_t, std::int64_t>(status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
}

}  // namespace

std::string ComponentWork::final_path(const std::string& path) const {
  return path.starts_with(out + "/") ? final_out + path.substr(out.size()) : path;
}

Result<PipelineInput> open_pipeline(const std::string& path, const OpenOptions& options) {
  const ReadOptions read = read_options(options);
  auto root = pin_path(path, read);
  if (!root) return fail_at(shown(path), root.error());
  PipelineInput input{.root = std::move(*root), .components = {}, .open = {}, .warnings = {}};
  input.components = TRY(list_components(input.root, options));
  if (input.components.empty()) return fail(Errc::kInvalidArgument, "{}: not a pipeline", shown(path));
  TRY(choose_variants(input, options));
  return input;
}

Result<bool> is_pipeline_instead(const Error& error, const std::string& path, const OpenOptions& open) {
  if (error.code != Errc::kInvalidArgument || !open.component.empty()) return false;
  const auto components = list_components(path, open);
  if (components) return !components->empty();
  if (components.error().code == Errc::kInvalidArgument) return false;  // the first error says what is wrong
  return std::unexpected(components.error());
}

Result<void> check_pipeline_output(const PipelineInput& input, const std::string& out, bool force) {
  TRY(check_output_path(out));
  if (is_weights_name(out)) {
    return fail(Errc::kInvalidArgument, "{}: a pipeline is written to a directory; give the name of one", escape(out));
  }
  if (!is_uri(input.root) && overlap(input.root, out)) {
    return fail(Errc::kInvalidArgument, "{}: the pipeline is read from here; give another output directory", escape(out));
  }
  if (force) return {};
  const auto others = TRY(find_others(input, out, TRY(plan_top_level(input)).names));
  if (others.empty()) return {};
  return fail(
      Errc::kWrite,
      "{}: the directory is not empty: {}{} would stay beside the pipeline; choose another directory, or allow it (force)",
      escape(out), quote(others.front()), others.size() > 1 ? fmt::format(" and {} more files", others.size() - 1) : "");
}

Result<WrittenPipeline> write_pipeline(const PipelineInput& input, const PipelineWork& work, const WriteComponent& write) {
  TRY(check_pipeline_output(input, work.out, work.force));
  const TopLevel top = TRY(plan_top_level(input));
  OutputTree tree = TRY(OutputTree::create(work.out, work.resume));
  return Writing(input, work, std::move(tree)).run(top, write);
}

bool is_newer_than_sources(const PipelineInput& input, const std::string& out) {
  const auto made = changed_at(fmt::format("{}/{}", out, kPipelineFile));
  if (!made || is_uri(input.root)) return false;
  std::vector<std::string> folders{input.root};
  for (const Component& component : input.components) folders.push_back(component.path);
  for (const std::string& folder : folders) {
    const auto names = list_names(folder, {});
    if (!names) return false;
    for (const std::string& name : *names) {
      const auto changed = changed_at(join_path(folder, name));
      std::error_code error;
      if (fs::is_regular_file(join_path(folder, name), error) && (!changed || *changed > *made)) return false;
    }
  }
  const auto top = plan_top_level(input);
  return top && std::ranges::all_of(top->names, [&](const std::string& name) {
           std::error_code error;
           return fs::exists(fmt::format("{}/{}", out, name), error);
         });
}

Result<std::string> describe_folder(const std::string& folder, const OpenOptions& options) {
  std::string text;
  for (const ListedFile& file : TRY(Folder(folder, read_options(options)).files())) {
    text += fmt::format("{}\n{} {} {}", file.name, file.size, file.etag, file.sha256);
    if (const auto changed = is_uri(folder) ? std::nullopt : changed_at(join_path(folder, file.name))) {
      text += fmt::format(" {}.{}", changed->first, changed->second);
    }
    text += "\n";
  }
  return text;
}

}  // namespace ballast
