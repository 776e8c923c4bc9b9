#include "write.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <ballast/convert_model.h>
#include <ballast/download.h>
#include <ballast/edit_metadata.h>
#include <ballast/quantize.h>
#include <ballast/sink.h>

#include "bytes.h"
#include "errors.h"
#include "interrupts.h"
#include "long_work.h"
#include "model.h"
#include "tensors.h"
#include "values.h"

namespace ballast::python {
namespace {

namespace nb = nanobind;

void save(const FsPath& path, const std::vector<Item>& items, const std::optional<Pairs>& metadata, bool sync,
          std::uint64_t max_shard_size, nb::object progress) {
  const Tensors tensors(items);
  std::uint64_t bytes = 0;
  for (const TensorView& view : tensors.views()) {
    take(check_bytes(view));
    bytes += view.bytes.size();
  }
  const SinkOptions options{.max_shard_bytes = max_shard_size,
                            .metadata = metadata_of(metadata),
                            .keep_empty_metadata = metadata.has_value(),
                            .sync = sync};
  constexpr std::uint64_t kLittle = std::uint64_t{8} << 20;  // written before anyone could cancel it
  if (progress.is_none() && bytes <= kLittle) {
    take(released([&] { return save_tensors(path.get(), tensors.views(), options); }));
    return;
  }
  LongWork work(std::move(progress));
  work.run([&] { return save_tensors(path.get(), tensors.views(), options, work.options()); });
}

nb::bytes serialize(const std::vector<Item>& items, const std::optional<Pairs>& metadata) {
  const Tensors tensors(items);
  const SafetensorsLayout layout = take(safetensors_layout(tensors.specs(), metadata_of(metadata), metadata.has_value()));
  for (const TensorView& view : tensors.views()) take(check_bytes(view));
  PyObject* const made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(layout.file_size));
  if (made == nullptr) throw nb::python_error();
  auto file = nb::steal<nb::bytes>(made);
  char* const out = PyBytes_AS_STRING(made);
  released([&] {
    std::ranges::copy(layout.header, out);
    for (std::size_t i = 0; i < tensors.views().size(); ++i) {
      const std::span<const std::byte> bytes = tensors.views()[i].bytes;
      if (!bytes.empty()) std::memcpy(out + layout.offsets[i], bytes.data(), bytes.size());
    }
    return true;
  });
  return file;
}

nb::dict report_of(const ConvertReport& report) {
  nb::dict made;
  nb::list files;
  for (const ConvertedFile& file : report.files) files.append(path_text(file.path));
  made["files"] = files;
  made["tensors"] = report.tensors;
  made["converted"] = report.converted;
  made["data_bytes"] = report.data_bytes;
  made["not_copied"] = path_texts(report.not_copied);
  made["notes"] = report.notes;
  made["warnings"] = report.warnings;
  made["components"] = components_of(report.components);
  return made;
}

Format format_of(const std::string& name) {
  for (const Format format : {Format::kSafetensors, Format::kMlxJson}) {
    if (ballast::name(format) == name) return format;
  }
  raise({.code = Errc::kInvalidArgument, .message = "unknown format '" + name + "'; use safetensors or mlx-json"});
}

using StringPair = std::pair<std::string, std::string>;

// `source` is an open model or a path.
nb::dict convert(const nb::object& source, const FsPath& path, const std::optional<std::string>& dtype,
                 const std::vector<StringPair>& dtype_rules, const std::optional<std::string>& format,
                 std::uint64_t max_shard_size, const std::vector<std::string>& include, const std::vector<std::string>& exclude,
                 const std::vector<StringPair>& renames, const Loras& loras, const std::optional<Pairs>& metadata,
                 bool allow_loss, bool sync, bool resume, bool force, unsigned threads, std::uint64_t memory_limit,
                 const std::string& component, const std::string& variant, nb::object progress) {
  LongWork work(std::move(progress));
  ConvertOptions options{.include = include,
                         .exclude = exclude,
                         .loras = loras_of(loras),
                         .on_loss = allow_loss ? OnLoss::kAllow : OnLoss::kRefuse,
                         .sink = {.max_shard_bytes = max_shard_size, .sync = sync},
                         .resume = resume,
                         .force = force,
                         .work = work.options(threads, memory_limit)};
  if (metadata) options.metadata = metadata_of(metadata);
  if (dtype) options.dtype = dtype_of(*dtype);
  for (const auto& [pattern, to] : dtype_rules) options.dtype_rules.push_back({.pattern = pattern, .dtype = dtype_of(to)});
  for (const auto& [from, to] : renames) options.renames.push_back({.from = from, .to = to});
  if (format) options.sink.format = format_of(*format);
  if (nb::isinstance<OpenModel>(source)) {
    const auto model = nb::cast<const OpenModel&>(source).shared();
    return report_of(work.run([&] { return convert_model(*model, path.get(), options); }));
  }
  const auto from = nb::cast<FsPath>(source);
  const OpenOptions open{.component = component, .variant = variant, .stop = options.work.stop};
  return report_of(work.run([&] { return convert_path(from.get(), path.get(), options, open); }));
}

nb::dict dequantize(const FsPath& quantized, const FsPath& path, const std::optional<std::string>& dtype,
                    const std::optional<std::string>& format, std::uint64_t max_shard_size, bool sync, bool force,
                    std::uint64_t memory_limit, const std::string& component, nb::object progress) {
  LongWork work(std::move(progress));
  DequantizeOptions options{.open = {.component = component},
                            .sink = {.max_shard_bytes = max_shard_size, .sync = sync},
                            .force = force,
                            .work = work.options(0, memory_limit)};
  if (dtype) options.dtype = dtype_of(*dtype);
  if (format) options.sink.format = format_of(*format);
  return report_of(work.run([&] { return dequantize_model(quantized.get(), path.get(), options); }));
}

std::string_view edit_metadata(const FsPath& path, const std::vector<StringPair>& set, std::vector<std::string> unset,
                               nb::object progress) {
  LongWork work(std::move(progress));
  const MetadataEdit edit{.set = Metadata(set.begin(), set.end()), .unset = std::move(unset)};
  switch (work.run([&] { return ballast::edit_metadata(path.get(), edit, {.stop = was_interrupted}, work.options()); })) {
    case MetadataChange::kNone: return "unchanged";
    case MetadataChange::kInPlace: return "in place";
    case MetadataChange::kRewritten: return "rewritten";
  }
  std::unreachable();
}

nb::dict download(const std::string& uri, const std::optional<FsPath>& folder, std::vector<std::string> include,
                  std::vector<std::string> exclude, std::string component, std::string variant, bool sync, bool force,
                  nb::object progress) {
  LongWork work(std::move(progress));
  const DownloadOptions options{.include = std::move(include),
                                .exclude = std::move(exclude),
                                .component = std::move(component),
                                .variant = std::move(variant),
                                .sync = sync,
                                .force = force,
                                .work = work.options()};
  const std::string place = folder ? folder->get() : "";
  const DownloadReport report = work.run([&] { return ballast::download(uri, place, options); });
  nb::list files;
  for (const DownloadedFile& file : report.files) {
    nb::dict made;
    made["path"] = path_text(file.path);
    made["size"] = file.size;
    made["already_complete"] = file.already_complete;
    made["checksum"] = file.checksum.empty() ? nb::none() : nb::object(text(file.checksum));
    files.append(made);
  }
  nb::dict made;
  made["folder"] = path_text(report.folder);
  made["files"] = files;
  made["fetched_bytes"] = report.fetched_bytes;
  return made;
}

}  // namespace

void bind_write(nb::module_& module) {
  module.def("save", &save, nb::arg("path"), nb::arg("tensors"), nb::arg("metadata").none(), nb::arg("sync"),
             nb::arg("max_shard_size"), nb::arg("progress") = nb::none());
  module.def("serialize", &serialize, nb::arg("tensors"), nb::arg("metadata").none());
  module.def("convert", &convert, nb::arg("source"), nb::arg("path"), nb::kw_only(), nb::arg("dtype").none(),
             nb::arg("dtype_rules"), nb::arg("format").none(), nb::arg("max_shard_size"), nb::arg("include"), nb::arg("exclude"),
             nb::arg("rename"), nb::arg("lora"), nb::arg("metadata").none(), nb::arg("allow_loss"), nb::arg("sync"),
             nb::arg("resume"), nb::arg("force"), nb::arg("threads"), nb::arg("memory_limit"), nb::arg("component"),
             nb::arg("variant"), nb::arg("progress").none());
  module.def("dequantize", &dequantize, nb::arg("quantized"), nb::arg("path"), nb::kw_only(), nb::arg("dtype").none(),
             nb::arg("format").none(), nb::arg("max_shard_size"), nb::arg("sync"), nb::arg("force"), nb::arg("memory_limit"),
             nb::arg("component"), nb::arg("progress").none());
  module.def("edit_metadata", &edit_metadata, nb::arg("path"), nb::kw_only(), nb::arg("set"), nb::arg("unset"),
             nb::arg("progress").none());
  module.def("download", &download, nb::arg("uri"), nb::arg("folder").none(), nb::kw_only(), nb::arg("include"),
             nb::arg("exclude"), nb::arg("component"), nb::arg("variant"), nb::arg("sync"), nb::arg("force"),
             nb::arg("progress").none());
}

}  // namespace ballast::python
