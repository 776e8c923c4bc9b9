#include "write.h"

#include <optional>
#include <string>
#include <utility>

#include <ballast/convert.h>
#include <ballast/convert_model.h>
#include <ballast/download.h>

#include "addon.h"
#include "errors.h"
#include "model.h"
#include "values.h"

namespace ballast::node {

std::optional<Format> format_of(const Napi::Value& value) {
  if (!value.IsString()) return std::nullopt;
  return text_of(value) == name(Format::kMlxJson) ? Format::kMlxJson : Format::kSafetensors;
}

Napi::Value convert_report_value(Napi::Env env, const ConvertReport& report) {
  auto files = Napi::Array::New(env, report.files.size());
  for (std::uint32_t i = 0; i < report.files.size(); ++i) files.Set(i, text_value(env, report.files[i].path));
  auto made = Napi::Object::New(env);
  made.Set("files", files);
  made.Set("tensors", count_value(env, report.tensors));
  made.Set("converted", count_value(env, report.converted));
  made.Set("dataBytes", count_value(env, report.data_bytes));
  made.Set("notCopied", texts_value(env, report.not_copied));
  made.Set("notes", texts_value(env, report.notes));
  made.Set("warnings", texts_value(env, report.warnings));
  if (!report.components.empty()) made.Set("components", components_value(env, report.components));
  return made;
}

namespace {

// (source, path, options, progress)
Napi::Value convert(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  ConvertOptions options{.dtype = dtype_of(given.Get("dtype")),
                         .include = texts_of(given.Get("include")),
                         .exclude = texts_of(given.Get("exclude")),
                         .loras = loras_of(given.Get("lora")),
                         .on_loss = flag(given, "allowLoss") ? OnLoss::kAllow : OnLoss::kRefuse,
                         .sink = {.format = format_of(given.Get("format")),
                                  .max_shard_bytes = number(given, "maxShardSize"),
                                  .sync = flag(given, "sync")},
                         .resume = flag(given, "resume"),
                         .force = flag(given, "force")};
  const auto threads = static_cast<unsigned>(number(given, "threads"));
  const std::uint64_t memory_limit = number(given, "memoryLimit");
  for (const auto& [pattern, to] : pairs_of(given.Get("dtypeRules"))) {
    options.dtype_rules.push_back({.pattern = pattern, .dtype = *parse_dtype(to)});
  }
  for (const auto& [from, to] : pairs_of(given.Get("rename"))) options.renames.push_back({.from = from, .to = to});
  if (given.Get("metadata").IsArray()) options.metadata = metadata_of(given.Get("metadata"));
  const auto work = [source = NativeModel::source_of(info[0]), path = text_of(info[1]), options, threads, memory_limit,
                     open = open_options(given)](Job& job) {
    ConvertOptions all = options;
    all.work = job.work(threads, memory_limit);
    if (source.path() == nullptr) return source.with(job, [&](const Model& model) { return convert_model(model, path, all); });
    OpenOptions from = open;
    from.stop = all.work.stop;
    return convert_path(*source.path(), path, all, from);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, convert_report_value), info[3]);
}

Napi::Value download_report_value(Napi::Env env, const DownloadReport& report) {
  auto files = Napi::Array::New(env, report.files.size());
  for (std::uint32_t i = 0; i < report.files.size(); ++i) {
    const DownloadedFile& file = report.files[i];
    auto made = Napi::Object::New(env);
    made.Set("path", text_value(env, file.path));
    made.Set("size", count_value(env, file.size));
    made.Set("alreadyComplete", Napi::Boolean::New(env, file.already_complete));
    made.Set("checksum", file.checksum.empty() ? env.Null() : text_value(env, file.checksum));
    files.Set(i, made);
  }
  auto made = Napi::Object::New(env);
  made.Set("folder", text_value(env, report.folder));
  made.Set("files", files);
  made.Set("fetchedBytes", count_value(env, report.fetched_bytes));
  return made;
}

// (uri, folder, options, progress)
Napi::Value download(const Napi::CallbackInfo& info) {
  const auto given = info[2].As<Napi::Object>();
  const DownloadOptions options{.include = texts_of(given.Get("include")),
                                .exclude = texts_of(given.Get("exclude")),
                                .component = open_options(given).component,
                                .variant = open_options(given).variant,
                                .sync = flag(given, "sync"),
                                .force = flag(given, "force")};
  const auto work = [uri = text_of(info[0]), folder = text_of(info[1]), options](Job& job) {
    DownloadOptions all = options;
    all.work = job.work();
    return ballast::download(uri, folder, all);
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work, download_report_value), info[3]);
}

// (dtype, bytes, floats): fills `floats`, which has room for all values.
Napi::Value to_float32(const Napi::CallbackInfo& info) {
  const auto from = info[1].As<Napi::Uint8Array>();
  auto to = info[2].As<Napi::Float32Array>();
  const auto done = convert_values(*dtype_of(info[0]), std::as_bytes(std::span(from.Data(), from.ByteLength())), DType::kF32,
                                   std::as_writable_bytes(std::span(to.Data(), to.ElementLength())));
  if (!done) return throw_error(info.Env(), done.error());
  return info.Env().Undefined();
}

}  // namespace

NativeSink::NativeSink(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<NativeSink>(info), sink_(*info[0].As<Napi::External<std::shared_ptr<Sink>>>().Data()) {}

void NativeSink::define(Napi::Env env, Napi::Object& exports) {
  const Napi::Function sink =
      DefineClass(env, "NativeSink",
                  {InstanceMethod("write", &NativeSink::write), InstanceMethod("commit", &NativeSink::commit),
                   InstanceMethod("discard", &NativeSink::discard)});
  Addon::of(env).sink = Napi::Persistent(sink);
  exports.Set("createSink", Napi::Function::New(env, &NativeSink::create));
}

// (path, [[name, dtype, shape], …], {metadata, maxShardSize, sync})
Napi::Value NativeSink::create(const Napi::CallbackInfo& info) {
  const auto tensors = info[1].As<Napi::Array>();
  std::vector<TensorSpec> specs;
  for (std::uint32_t i = 0; i < tensors.Length(); ++i) {
    const auto tensor = tensors.Get(i).As<Napi::Array>();
    const auto shape = tensor.Get(2U).As<Napi::Array>();
    TensorSpec spec{.name = text_of(tensor.Get(0U)), .dtype = *dtype_of(tensor.Get(1U))};
    for (std::uint32_t dim = 0; dim < shape.Length(); ++dim) {
      spec.shape.push_back(static_cast<std::uint64_t>(shape.Get(dim).As<Napi::Number>().Int64Value()));
    }
    specs.push_back(std::move(spec));
  }
  const auto given = info[2].As<Napi::Object>();
  const Napi::Value metadata = given.Get("metadata");
  SinkOptions options{
      .max_shard_bytes = number(given, "maxShardSize"), .keep_empty_metadata = metadata.IsArray(), .sync = flag(given, "sync")};
  if (metadata.IsArray()) options.metadata = metadata_of(metadata);
  const auto work = [path = text_of(info[0]), specs, options](Job&) -> Result<std::shared_ptr<Sink>> {
    auto sink = create_sink(path, specs, options);
    if (!sink) return std::unexpected(std::move(sink.error()));
    return std::shared_ptr<Sink>(*std::move(sink));
  };
  const auto describe = [](Napi::Env env, std::shared_ptr<Sink>& sink) -> Napi::Value {
    return Addon::of(env).sink.New({Napi::External<std::shared_ptr<Sink>>::New(env, &sink)});
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kShort, job_of(work, describe), info.Env().Undefined());
}

// ([tensor, offset, length, …], buffer): the pieces follow each other in the buffer, which must not change until it is done.
Napi::Value NativeSink::write(const Napi::CallbackInfo& info) {
  const auto numbers = info[0].As<Napi::Float64Array>();
  const std::vector<double> pieces(numbers.Data(), numbers.Data() + numbers.ElementLength());
  const auto work = [sink = sink_, pieces, bytes = bytes_of(info[1])](Job&) -> Result<void> {
    std::size_t at = 0;
    for (std::size_t i = 0; i < pieces.size(); i += 3) {
      const auto length = static_cast<std::size_t>(pieces[i + 2]);
      const std::span piece = bytes.subspan(at, length);
      auto written = sink->write(static_cast<std::size_t>(pieces[i]), static_cast<std::uint64_t>(pieces[i + 1]), piece);
      if (!written) return written;
      at += length;
    }
    return {};
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kShort, job_of(work), info.Env().Undefined(), {info[1]});
}

Napi::Value NativeSink::commit(const Napi::CallbackInfo& info) {
  const auto work = [sink = std::exchange(sink_, nullptr)](Job&) { return sink->commit(); };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work), info.Env().Undefined());
}

// Removes the partial output, in a thread because deleting a large file takes time.
Napi::Value NativeSink::discard(const Napi::CallbackInfo& info) {
  const auto work = [sink = std::make_shared<std::shared_ptr<Sink>>(std::exchange(sink_, nullptr))](Job&) -> Result<void> {
    sink->reset();
    return {};
  };
  return Addon::of(info.Env()).jobs.start(info.Env(), Jobs::Length::kLong, job_of(work), info.Env().Undefined());
}

void define_write(Napi::Env env, Napi::Object& exports) {
  NativeSink::define(env, exports);
  exports.Set("convert", Napi::Function::New(env, &convert));
  exports.Set("download", Napi::Function::New(env, &download));
  exports.Set("toFloat32", Napi::Function::New(env, &to_float32));
}

}  // namespace ballast::node
