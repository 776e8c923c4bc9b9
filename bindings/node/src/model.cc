#include "model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ballast/architecture.h>
#include <ballast/pipeline.h>
#include <ballast/text.h>
#include <ballast/weights.h>

#include "addon.h"
#include "buffers.h"
#include "errors.h"
#include "values.h"

namespace ballast::node {
namespace {

Napi::Value architecture_value(Napi::Env env, const std::optional<ArchitectureReport>& report) {
  if (!report) return env.Null();
  auto misshaped = Napi::Array::New(env, report->misshaped.size());
  for (std::uint32_t i = 0; i < report->misshaped.size(); ++i) {
    const ShapeMismatch& mismatch = report->misshaped[i];
    auto made = Napi::Object::New(env);
    made.Set("name", text_value(env, mismatch.name));
    made.Set("expected", shape_value(env, mismatch.expected));
    made.Set("found", shape_value(env, mismatch.found));
    misshaped.Set(i, made);
  }
  auto made = Napi::Object::New(env);
  made.Set("expectedTensors", count_value(env, report->expected_tensors));
  made.Set("missing", texts_value(env, report->missing));
  made.Set("unexpected", texts_value(env, report->unexpected));
  made.Set("misshaped", misshaped);
  return made;
}

// Reads in pieces, so that it can be cancelled.
Result<void> read_values(Job& job, const Opened& opened, const std::string& name, std::span<std::byte> out) {
  constexpr std::size_t kPiece = std::size_t{64} << 20;
  const Visit visit(*opened.users, job);
  std::size_t done = 0;
  do {
    if (job.is_stopped()) return std::unexpected(Error{.code = Errc::kCancelled, .message = "cancelled"});
    const std::span piece = out.subspan(done, std::min(kPiece, out.size() - done));
    if (auto read = opened.model.read_into(name, done, piece); !read) return read;
    done += piece.size();
  } while (done < out.size());
  return {};
}

Result<void> read_slice(Job& job, const Opened& opened, const std::string& name, std::span<const Slice> slices,
                        std::span<std::byte> out) {
  const Visit visit(*opened.users, job);
  advise_huge_pages(out);
  const auto part = opened.model.slice(name, slices);
  if (!part) return std::unexpected(part.error());
  if (part->bytes().size() != out.size()) {
    return std::unexpected(Error{.code = Errc::kInvalidArgument,
                                 .message = "tensor " + name + ": slice has " + std::to_string(part->bytes().size()) +
                                            " bytes, expected " + std::to_string(out.size())});
  }
  if (!out.empty()) std::memcpy(out.data(), part->bytes().data(), out.size());
  return {};
}

Napi::Value loaded_buffer(Napi::Env env, const TensorView& tensor, const std::shared_ptr<const LoadedModel>& loaded) {
  if (!tensor.bytes.empty() && is_aligned(tensor.bytes.data(), tensor.dtype)) return external_buffer(env, tensor.bytes, loaded);
  const auto copy = Napi::ArrayBuffer::New(env, tensor.bytes.size());
  if (!env.IsExceptionPending() && !tensor.bytes.empty()) {
    std::memcpy(bytes_of(copy).data(), tensor.bytes.data(), tensor.bytes.size());
  }
  return copy;
}

// A local path that contains :// works too, only in the other pool.
Jobs::Length length_of(const std::string& path) {
  return path.find("://") == std::string::npos ? Jobs::Length::kShort : Jobs::Length::kRemote;
}

std::optional<std::int64_t> bound_of(const Napi::Value& value) {
  if (!value.IsNumber()) return std::nullopt;
  return value.As<Napi::Number>().Int64Value();
}

}  // namespace

void Users::add(const Job& job) {
  const std::scoped_lock lock(mutex_);
  jobs_.push_back(&job);
}

void Users::remove(const Job& job) {
  const std::scoped_lock lock(mutex_);
  jobs_.erase(std::ranges::find(jobs_, &job));
}

bool Users::are_all_stopped() const {
  const std::scoped_lock lock(mutex_);
  return !jobs_.empty() && std::ranges::all_of(jobs_, &Job::is_stopped);
}

Result<std::shared_ptr<const Opened>> open_as(Job& job, OpenRequest request) {
  auto users = std::make_shared<Users>();
  const Visit visit(*users, job);
  request.options.writable_views = true;
  request.options.stop = [users] { return users->are_all_stopped(); };
  const auto open = [&]() -> Result<Model> {
    if (request.pretrained) return load_pretrained(request.path, request.options);
    if (!request.decode) return open_stored(request.path, request.options);
    auto weights = Weights::open(request.path, request.options);
    return weights ? decode(std::move(*weights), request.dtype) : std::unexpected(std::move(weights.error()));
  };
  auto model = open();
  if (!model) return std::unexpected(std::move(model.error()));
  return std::make_shared<const Opened>(Opened{.users = std::move(users), .model = *std::move(model)});
}

Jobs::Length Opened::read_length() const { return length_of(model.path()); }

template <Napi::Value (NativeModel::*kMethod)(const Napi::CallbackInfo&)>
Napi::Value NativeModel::when_open(const Napi::CallbackInfo& info) {
  if (opened_ != nullptr) return (this->*kMethod)(info);
  return throw_closed(info.Env());
}

NativeModel::NativeModel(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<NativeModel>(info), opened_(*info[0].As<Napi::External<std::shared_ptr<const Opened>>>().Data()) {}

void NativeModel::define(Napi::Env env, Napi::Object& exports) {
  const Napi::Function model =
      DefineClass(env, "NativeModel",
                  {InstanceMethod("summary", &NativeModel::when_open<&NativeModel::summary>),
                   InstanceMethod("names", &NativeModel::when_open<&NativeModel::names>),
                   InstanceMethod("files", &NativeModel::when_open<&NativeModel::files>),
                   InstanceMethod("metadata", &NativeModel::when_open<&NativeModel::metadata>),
                   InstanceMethod("config", &NativeModel::when_open<&NativeModel::config>),
                   InstanceMethod("modality", &NativeModel::when_open<&NativeModel::modality>),
                   InstanceMethod("warnings", &NativeModel::when_open<&NativeModel::warnings>),
                   InstanceMethod("info", &NativeModel::when_open<&NativeModel::info>),
                   InstanceMethod("view", &NativeModel::when_open<&NativeModel::view>),
                   InstanceMethod("read", &NativeModel::when_open<&NativeModel::read>),
                   InstanceMethod("slice", &NativeModel::when_open<&NativeModel::slice>),
                   InstanceMethod("load", &NativeModel::when_open<&NativeModel::load>),
                   InstanceMethod("checkArchitecture", &NativeModel::when_open<&NativeModel::check_architecture>),
                   InstanceMethod("close", &NativeModel::close), InstanceMethod("isClosed", &NativeModel::is_closed)});
  Addon::of(env).model = Napi::Persistent(model);
  exports.Set("open", Napi::Function::New(env, &NativeModel::open));
  exports.Set("components", Napi::Function::New(env, &NativeModel::components));
}

// (path, {pretrained, decode, mmap, reference, maxHeaderBytes})
Napi::Value NativeModel::open(const Napi::CallbackInfo& info) {
  const auto options = info[1].As<Napi::Object>();
  const OpenRequest request{
      .path = text_of(info[0]),
      .pretrained = flag(options, "pretrained"),
      .decode = flag(options, "decode"),
      .options = {.access = flag(options, "mmap") ? Access::kAuto : Access::kPread,
                  .strictness = flag(options, "reference") ? Strictness::kReference : Strictness::kStrict,
                  .max_header_bytes = number(options, "maxHeaderBytes"),
                  .component = open_options(options).component,
                  .variant = open_options(options).variant},
  };
  const auto describe = [](Napi::Env env, std::shared_ptr<const Opened>& opened) -> Napi::Value {
    return Addon::of(env).model.New({Napi::External<std::shared_ptr<const Opened>>::New(env, &opened)});
  };
  const auto work = job_of([request](Job& job) { return open_as(job, request); }, describe);
  return Addon::of(info.Env()).jobs.start(info.Env(), length_of(request.path), work, info.Env().Undefined());
}

// (path)
Napi::Value NativeModel::components(const Napi::CallbackInfo& info) {
  const auto describe = [](Napi::Env env, const std::vector<Component>& found) -> Napi::Value {
    auto made = Napi::Array::New(env, found.size());
    for (std::uint32_t i = 0; i < found.size(); ++i) {
      auto each = Napi::Object::New(env);
      each.Set("name", text_value(env, found[i].name));
      each.Set("library", text_value(env, found[i].library));
      each.Set("className", text_value(env, found[i].class_name));
      each.Set("path", text_value(env, found[i].path));
      each.Set("hasWeights", Napi::Boolean::New(env, found[i].has_weights));
      each.Set("isDenoiser", Napi::Boolean::New(env, found[i].is_denoiser));
      each.Set("variants", texts_value(env, found[i].variants));
      made.Set(i, each);
    }
    return made;
  };
  const std::string path = text_of(info[0]);
  const auto work = [path](Job& job) { return list_components(path, {.stop = [&job] { return job.is_stopped(); }}); };
  return Addon::of(info.Env()).jobs.start(info.Env(), length_of(path), job_of(work, describe), info.Env().Undefined());
}

Source NativeModel::source_of(const Napi::Value& value) {
  if (value.IsString() || value.IsTypedArray()) return {.place = text_of(value)};
  return {.place = Unwrap(value.As<Napi::Object>())->opened_};
}

Napi::Value NativeModel::summary(const Napi::CallbackInfo& info) {
  const Model& model = opened_->model;
  const Napi::Env env = info.Env();
  auto made = Napi::Object::New(env);
  made.Set("path", text_value(env, model.path()));
  made.Set("shownPath", text_value(env, escape(model.path())));
  made.Set("format", text_value(env, name(model.format())));
  made.Set("fileSize", count_value(env, model.file_size()));
  made.Set("parameters", count_value(env, model.parameter_count()));
  made.Set("nbytes", count_value(env, model.data_bytes()));
  made.Set("count", count_value(env, model.tensors().size()));
  made.Set("modelType", model.config() ? text_value(env, model.config()->model_type) : env.Null());
  return made;
}

Napi::Value NativeModel::names(const Napi::CallbackInfo& info) {
  const auto tensors = opened_->model.tensors();
  auto made = Napi::Array::New(info.Env(), tensors.size());
  for (std::uint32_t i = 0; i < tensors.size(); ++i) made.Set(i, text_value(info.Env(), tensors[i].name));
  return made;
}

Napi::Value NativeModel::files(const Napi::CallbackInfo& info) {
  const auto files = opened_->model.files();
  auto made = Napi::Array::New(info.Env(), files.size());
  for (std::uint32_t i = 0; i < files.size(); ++i) made.Set(i, text_value(info.Env(), files[i].path));
  return made;
}

Napi::Value NativeModel::metadata(const Napi::CallbackInfo& info) {
  return metadata_value(info.Env(), opened_->model.metadata());
}

Napi::Value NativeModel::config(const Napi::CallbackInfo& info) { return config_value(info.Env(), opened_->model.config()); }

Napi::Value NativeModel::modality(const Napi::CallbackInfo& info) {
  return modality_value(info.Env(), opened_->model.modality());
}

Napi::Value NativeModel::warnings(const Napi::CallbackInfo& info) { return texts_value(info.Env(), opened_->model.warnings()); }

// [dtype, shape, begin, end, file], or null.
Napi::Value NativeModel::info(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const TensorInfo* const tensor = opened_->model.find(text_of(info[0]));
  if (tensor == nullptr) return env.Null();
  auto made = Napi::Array::New(env, 5);
  made.Set(0U, text_value(env, name(tensor->dtype)));
  made.Set(1U, shape_value(env, tensor->shape));
  made.Set(2U, count_value(env, tensor->begin));
  made.Set(3U, count_value(env, tensor->end));
  made.Set(4U, count_value(env, tensor->file));
  return made;
}

// (name): an ArrayBuffer over the mapped file, or a copy if no typed array can start at its address.
Napi::Value NativeModel::view(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string name = text_of(info[0]);
  const auto view = opened_->model.view(name);
  if (!view) return throw_error(env, view.error());
  if (view->bytes.empty()) return Napi::ArrayBuffer::New(env, 0);
  if (is_aligned(view->bytes.data(), view->dtype)) return external_buffer(env, view->bytes, opened_);
  const auto copy = Napi::ArrayBuffer::New(env, view->bytes.size());
  if (env.IsExceptionPending()) return copy;
  if (auto read = opened_->model.read_into(name, 0, bytes_of(copy)); !read) return throw_error(env, read.error());
  return copy;
}

// (name, buffer, dtype, allowLoss)
Napi::Value NativeModel::read(const Napi::CallbackInfo& info) {
  const auto out = bytes_of(info[1]);
  const auto work = [opened = opened_, name = text_of(info[0]), out, dtype = dtype_of(info[2]),
                     on_loss = info[3].ToBoolean() ? OnLoss::kAllow : OnLoss::kRefuse](Job& job) -> Result<void> {
    advise_huge_pages(out);
    if (!dtype) return read_values(job, *opened, name, out);
    const Visit visit(*opened->users, job);
    return opened->model.read_as_into(name, *dtype, out, on_loss);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), opened_->read_length(), job_of(work), info.Env().Undefined(), {info[1]});
}

// (name, [[start, stop, step], …], buffer)
Napi::Value NativeModel::slice(const Napi::CallbackInfo& info) {
  const auto bounds = info[1].As<Napi::Array>();
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < bounds.Length(); ++i) {
    const auto bound = bounds.Get(i).As<Napi::Array>();
    slices.push_back(
        {.start = bound_of(bound.Get(0U)), .stop = bound_of(bound.Get(1U)), .step = bound_of(bound.Get(2U)).value_or(1)});
  }
  const auto work = [opened = opened_, name = text_of(info[0]), slices, out = bytes_of(info[2])](Job& job) {
    return read_slice(job, *opened, name, slices, out);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), opened_->read_length(), job_of(work), info.Env().Undefined(), {info[2]});
}

// ({threads, memoryLimit}, progress): one ArrayBuffer per tensor, in the order of names(). They share one piece of memory, which
// lives until the last of them is collected; a tensor at an address where no typed array can start has a copy of its own.
Napi::Value NativeModel::load(const Napi::CallbackInfo& info) {
  const auto given = info[0].As<Napi::Object>();
  using Loaded = std::shared_ptr<const LoadedModel>;
  const auto work = [opened = opened_, threads = static_cast<unsigned>(number(given, "threads")),
                     memory_limit = number(given, "memoryLimit")](Job& job) -> Result<Loaded> {
    const Visit visit(*opened->users, job);
    auto loaded = opened->model.load_all({.work = job.work(threads, memory_limit)});
    if (!loaded) return std::unexpected(std::move(loaded.error()));
    return std::make_shared<const LoadedModel>(*std::move(loaded));
  };
  const auto describe = [](Napi::Env env, const Loaded& loaded) -> Napi::Value {
    const auto tensors = loaded->tensors();
    auto made = Napi::Array::New(env, tensors.size());
    for (std::uint32_t i = 0; i < tensors.size() && !env.IsExceptionPending(); ++i) {
      made.Set(i, loaded_buffer(env, tensors[i], loaded));
    }
    return made;
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, describe), info[1]);
}

Napi::Value NativeModel::check_architecture(const Napi::CallbackInfo& info) {
  const auto work = [opened = opened_](Job&) -> Result<std::optional<ArchitectureReport>> {
    const Model& model = opened->model;
    if (!model.config()) return std::nullopt;
    return ballast::check_architecture(*model.config(), model.tensors());
  };
  return Addon::of(info.Env())
      .jobs.start(info.Env(), Jobs::Length::kShort, job_of(work, architecture_value), info.Env().Undefined());
}

}  // namespace ballast::node
