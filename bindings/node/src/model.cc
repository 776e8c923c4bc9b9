#include "model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include <ballast/architecture.h>
#include <ballast/text.h>
#include <ballast/weights.h>

#include "addon.h"
#include "errors.h"
#include "values.h"

namespace ballast::node {
namespace {

// How typed arrays see values: in elements of this many bytes.
std::size_t element_bytes(DType dtype) {
  if (dtype == DType::kC64) return sizeof(float);
  return std::max<std::size_t>(bits(dtype) / 8, 1);
}

// Memory that JavaScript may write to, and what holds it.
Napi::Value external_buffer(Napi::Env env, std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  // The map is one of copy on write: JavaScript knows no arrays that cannot be written to.
  auto* const data = const_cast<std::byte*>(bytes.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  using Owner = std::shared_ptr<const void>;
  auto held = std::make_unique<Owner>(std::move(owner));
  const auto release = [](napi_env, void*, void* hint) { const std::unique_ptr<Owner> gone(static_cast<Owner*>(hint)); };
  napi_value buffer = nullptr;
  if (napi_create_external_arraybuffer(env, data, bytes.size(), release, held.get(), &buffer) == napi_ok) {
    held.release();  // NOLINT(bugprone-unused-return-value): `release` has it now
    return {env, buffer};
  }
  if (env.IsExceptionPending()) env.GetAndClearPendingException();
  return throw_error(env, {.code = Errc::kUnsupported,
                           .message = "this JavaScript engine cannot have a buffer of " + std::to_string(bytes.size()) +
                                      " bytes over a file: read() gives a copy"});
}

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

// Large memory comes in huge pages where the system has them: it is filled, and later unmapped, in a fraction of the time, in
// which the event loop has to wait for any memory that it asks for itself.
void advise_huge_pages(std::span<std::byte> memory) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(memory.data()) % kHugePage;
  if (memory.size() < before + kHugePage) return;
  const std::span inside = memory.subspan(before);
  ::madvise(inside.data(), inside.size() / kHugePage * kHugePage, MADV_HUGEPAGE);
}

// In pieces, so that it can be stopped.
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
    return std::unexpected(Error{.code = Errc::kInvalidArgument, .message = "the part has another size than was reckoned"});
  }
  if (!out.empty()) std::memcpy(out.data(), part->bytes().data(), out.size());
  return {};
}

// Local paths that look like URIs lose nothing by it.
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
    return weights ? decode(std::move(*weights)) : std::unexpected(std::move(weights.error()));
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
                   InstanceMethod("checkArchitecture", &NativeModel::when_open<&NativeModel::check_architecture>),
                   InstanceMethod("close", &NativeModel::close), InstanceMethod("isClosed", &NativeModel::is_closed)});
  Addon::of(env).model = Napi::Persistent(model);
  exports.Set("open", Napi::Function::New(env, &NativeModel::open));
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
                  .max_header_bytes = number(options, "maxHeaderBytes")},
  };
  const auto describe = [](Napi::Env env, std::shared_ptr<const Opened>& opened) -> Napi::Value {
    return Addon::of(env).model.New({Napi::External<std::shared_ptr<const Opened>>::New(env, &opened)});
  };
  const auto work = job_of([request](Job& job) { return open_as(job, request); }, describe);
  return Addon::of(info.Env()).jobs.start(info.Env(), length_of(request.path), work, info.Env().Undefined());
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
  auto made = Napi::Array::New(info.Env());
  for (const auto& [key, value] : opened_->model.metadata()) {
    auto pair = Napi::Array::New(info.Env(), 2);
    pair.Set(0U, text_value(info.Env(), key));
    pair.Set(1U, text_value(info.Env(), value));
    made.Set(made.Length(), pair);
  }
  return made;
}

// {json, usual}, or null.
Napi::Value NativeModel::config(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto& config = opened_->model.config();
  if (!config) return env.Null();
  auto usual = Napi::Object::New(env);
  for (const auto& [key, number] : usual_numbers(*config)) {
    const Napi::Value value =
        std::holds_alternative<bool>(number)
            ? Napi::Value(Napi::Boolean::New(env, std::get<bool>(number)))
            : Napi::Value(Napi::Number::New(env, std::visit([](auto plain) { return static_cast<double>(plain); }, number)));
    usual.Set(std::string(key), value);
  }
  auto made = Napi::Object::New(env);
  made.Set("json", text_value(env, config->json));
  made.Set("usual", usual);
  return made;
}

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

// (name): an ArrayBuffer over the mapped file, or a copy where a typed array could not begin at its address.
Napi::Value NativeModel::view(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string name = text_of(info[0]);
  const auto view = opened_->model.view(name);
  if (!view) return throw_error(env, view.error());
  if (view->bytes.empty()) return Napi::ArrayBuffer::New(env, 0);
  if (reinterpret_cast<std::uintptr_t>(view->bytes.data()) % element_bytes(view->dtype) == 0) {
    return external_buffer(env, view->bytes, opened_);
  }
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
