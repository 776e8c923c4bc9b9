#include "model.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <ballast/pipeline.h>
#include <ballast/weights.h>

#include "bytes.h"
#include "errors.h"
#include "interrupts.h"
#include "long_work.h"
#include "tensors.h"
#include "values.h"

namespace ballast::python {
namespace {

namespace nb = nanobind;

OpenModel open(const FsPath& path, bool decoded, bool map, bool reference, std::uint64_t max_header_bytes,
               const std::string& component, const std::string& variant) {
  const OpenOptions options{.access = map ? Access::kAuto : Access::kPread,
                            .strictness = reference ? Strictness::kReference : Strictness::kStrict,
                            .max_header_bytes = max_header_bytes,
                            .component = component,
                            .variant = variant,
                            .stop = was_interrupted};
  auto model = released([&]() -> Result<Model> {
    if (!decoded) return open_stored(path.get(), options);
    auto weights = Weights::open(path.get(), options);
    return weights ? decode(std::move(*weights)) : std::unexpected(std::move(weights.error()));
  });
  return OpenModel(std::make_shared<const Model>(take(std::move(model))));
}

nb::list components(const FsPath& path) {
  nb::list made;
  for (const Component& component : take(released([&] { return list_components(path.get(), {.stop = was_interrupted}); }))) {
    nb::dict each;
    each["name"] = component.name;
    each["library"] = component.library;
    each["class_name"] = component.class_name;
    each["path"] = path_text(component.path);
    each["has_weights"] = component.has_weights;
    each["is_denoiser"] = component.is_denoiser;
    each["variants"] = component.variants;
    made.append(each);
  }
  return made;
}

// A model in the caller's memory, which it holds.
struct BorrowingModel {
  HeldBuffer buffer;
  std::optional<Model> model;

  explicit BorrowingModel(const nb::handle& object) : buffer(object) {}
};

OpenModel from_buffer(const nb::object& object, const std::string& name, bool reference) {
  auto borrowing = std::make_shared<BorrowingModel>(object);
  const OpenOptions options{.strictness = reference ? Strictness::kReference : Strictness::kStrict};
  auto model = released([&] { return Model::from_bytes(borrowing->buffer.bytes(), name, options); });
  borrowing->model.emplace(take(std::move(model)));
  return OpenModel(std::shared_ptr<const Model>(borrowing, &*borrowing->model));
}

// A model of tensors in the caller's memory, which it holds.
struct BorrowingTensors {
  Tensors tensors;
  std::optional<Model> model;

  explicit BorrowingTensors(const std::vector<Item>& items) : tensors(items) {}
};

OpenModel from_tensors(const std::vector<Item>& items, const std::string& name, const std::optional<Pairs>& metadata) {
  auto borrowing = std::make_shared<BorrowingTensors>(items);
  borrowing->model.emplace(take(Model::from_tensors(borrowing->tensors.views(), name, metadata_of(metadata))));
  return OpenModel(std::shared_ptr<const Model>(borrowing, &*borrowing->model));
}

nb::object info(const OpenModel& self, std::string_view name) {
  const TensorInfo* const tensor = self.get().find(name);
  if (tensor == nullptr) return nb::none();
  return nb::make_tuple(text(ballast::name(tensor->dtype)), tuple_of(tensor->shape), tensor->begin, tensor->end, tensor->file);
}

Bytes view(const OpenModel& self, std::string_view name) {
  auto model = self.shared();
  const auto bytes = take(model->view(name)).bytes;
  return {.owner = std::move(model), .bytes = bytes};
}

Bytes writable_view(const OpenModel& self, std::string_view name) {
  auto model = self.shared();
  const auto bytes = take(model->writable_view(name));
  return {.owner = std::move(model), .bytes = bytes, .is_writable = true};
}

// Why there is no tensor of this name, and which one is similar.
std::string describe_missing(const OpenModel& self, std::string_view name) {
  const auto found = self.get().slice(name, {});
  return found ? std::string() : found.error().message;
}

Bytes read(const OpenModel& self, std::string_view name) {
  return Bytes::of(take(released([&, model = self.shared()] { return model->read(name); })));
}

Bytes read_as(const OpenModel& self, std::string_view name, std::string_view dtype, bool allow_loss) {
  const DType to = dtype_of(dtype);
  return Bytes::of(take(
      released([&, model = self.shared()] { return model->read_as(name, to, allow_loss ? OnLoss::kAllow : OnLoss::kRefuse); })));
}

using Bounds = std::tuple<std::optional<std::int64_t>, std::optional<std::int64_t>, std::int64_t>;

nb::tuple slice(const OpenModel& self, std::string_view name, const std::vector<Bounds>& bounds) {
  std::vector<Slice> slices;
  for (const auto& [start, stop, step] : bounds) slices.push_back({.start = start, .stop = stop, .step = step});
  Tensor part = take(released([&, model = self.shared()] { return model->slice(name, slices); }));
  const nb::tuple shape = tuple_of(part.shape());
  return nb::make_tuple(shape, Bytes::of(std::move(part)));
}

// The memory of one tensor of a loaded model. Its pages go back to the system when it is destroyed, even if other tensors are
// still in use.
class LoadedPiece {
 public:
  LoadedPiece(std::shared_ptr<const LoadedModel> all, std::span<const std::byte> bytes) : all_(std::move(all)), bytes_(bytes) {}
  LoadedPiece(const LoadedPiece&) = delete;
  LoadedPiece& operator=(const LoadedPiece&) = delete;

  ~LoadedPiece() {
    if (all_.use_count() == 1) return;  // all memory is freed
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t before = (page - reinterpret_cast<std::uintptr_t>(bytes_.data()) % page) % page;
    if (bytes_.size() < before + page) return;
    auto* const first = const_cast<std::byte*>(bytes_.data() + before);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    ::madvise(first, (bytes_.size() - before) / page * page, MADV_DONTNEED);
  }

 private:
  std::shared_ptr<const LoadedModel> all_;
  std::span<const std::byte> bytes_;
};

// One for each tensor, in the order of names().
nb::list load_all(const OpenModel& self, unsigned threads, std::uint64_t memory_limit, nb::object progress) {
  LongWork work(std::move(progress));
  const auto model = self.shared();
  const auto loaded = std::make_shared<const LoadedModel>(
      work.run([&] { return model->load_all({.work = work.options(threads, memory_limit)}); }));
  nb::list all;
  for (const TensorView& tensor : loaded->tensors()) {
    all.append(
        Bytes{.owner = std::make_shared<const LoadedPiece>(loaded, tensor.bytes), .bytes = tensor.bytes, .is_writable = true});
  }
  return all;
}

nb::list names(const OpenModel& self) {
  nb::list names;
  for (const TensorInfo& tensor : self.get().tensors()) names.append(text(tensor.name));
  return names;
}

nb::list files(const OpenModel& self) {
  nb::list files;
  for (const ModelFile& file : self.get().files()) files.append(nb::make_tuple(path_text(file.path), file.size, file.data_start));
  return files;
}

nb::object config(const OpenModel& self) {
  const auto& config = self.get().config();
  return config ? nb::object(text(config->json)) : nb::none();
}

// The numbers in the config under their usual names.
nb::dict usual_config(const OpenModel& self) {
  nb::dict made;
  const auto& config = self.get().config();
  if (!config) return made;
  for (const auto& [key, number] : usual_numbers(*config)) made[text(key)] = number;
  return made;
}

nb::object modality(const OpenModel& self) {
  const Modality found = self.get().modality();
  return found == Modality::kUnknown ? nb::none() : nb::object(text(name(found)));
}

}  // namespace

const std::shared_ptr<const Model>& OpenModel::held() const {
  if (is_closed()) throw nb::value_error("the model is closed");
  return model_;
}

void bind_model(nb::module_& module) {
  module.def("open", &open, nb::arg("path"), nb::arg("decode"), nb::arg("mmap"), nb::arg("reference"),
             nb::arg("max_header_bytes"), nb::arg("component") = "", nb::arg("variant") = "");
  module.def("list_components", &components);
  module.def("from_buffer", &from_buffer, nb::arg("buffer").none(), nb::arg("name"), nb::arg("reference"));
  module.def("from_tensors", &from_tensors, nb::arg("tensors"), nb::arg("name"), nb::arg("metadata").none());
  nb::class_<OpenModel>(module, "OpenModel")
      .def("close", &OpenModel::close)
      .def_prop_ro("closed", &OpenModel::is_closed)
      .def_prop_ro("path", [](const OpenModel& self) { return path_text(self.get().path()); })
      .def_prop_ro("directory", [](const OpenModel& self) { return path_text(self.get().directory()); })
      .def_prop_ro("format", [](const OpenModel& self) { return name(self.get().format()); })
      .def_prop_ro("file_size", [](const OpenModel& self) { return self.get().file_size(); })
      .def_prop_ro("num_parameters", [](const OpenModel& self) { return self.get().parameter_count(); })
      .def_prop_ro("data_bytes", [](const OpenModel& self) { return self.get().data_bytes(); })
      .def_prop_ro("count", [](const OpenModel& self) { return self.get().tensors().size(); })
      .def_prop_ro("metadata", [](const OpenModel& self) { return self.get().metadata(); })
      .def_prop_ro("has_metadata",
                   [](const OpenModel& self) { return std::ranges::any_of(self.get().files(), &ModelFile::has_metadata); })
      .def_prop_ro("config", &config)
      .def_prop_ro("usual_config", &usual_config)
      .def_prop_ro("modality", &modality)
      .def_prop_ro("warnings",
                   [](const OpenModel& self) {
                     const auto warnings = self.get().warnings();
                     return std::vector<std::string>(warnings.begin(), warnings.end());
                   })
      .def("names", &names)
      .def("files", &files)
      .def("has", [](const OpenModel& self, std::string_view name) { return self.get().has(name); })
      .def("info", &info)
      .def("describe_missing", &describe_missing)
      .def("view", &view)
      .def("writable_view", &writable_view)
      .def("read", &read)
      .def("read_as", &read_as, nb::arg("name"), nb::arg("dtype"), nb::arg("allow_loss"))
      .def("slice", &slice)
      .def("load_all", &load_all, nb::arg("threads"), nb::arg("memory_limit"), nb::arg("progress").none())
      .def("release", [](const OpenModel& self, std::string_view name) { take(self.get().release(name)); });
}

}  // namespace ballast::python
