#pragma once

#include <memory>
#include <optional>

#include <napi.h>

#include <ballast/convert_model.h>
#include <ballast/sink.h>

namespace ballast::node {

// An output that JavaScript writes piece by piece. Each method returns {promise, cancel}.
class NativeSink : public Napi::ObjectWrap<NativeSink> {
 public:
  static void define(Napi::Env env, Napi::Object& exports);

  explicit NativeSink(const Napi::CallbackInfo& info);

 private:
  static Napi::Value create(const Napi::CallbackInfo& info);
  Napi::Value write(const Napi::CallbackInfo& info);
  Napi::Value commit(const Napi::CallbackInfo& info);
  Napi::Value discard(const Napi::CallbackInfo& info);

  std::shared_ptr<Sink> sink_;
};

std::optional<Format> format_of(const Napi::Value& value);  // undefined for none
Napi::Value convert_report_value(Napi::Env env, const ConvertReport& report);

void define_write(Napi::Env env, Napi::Object& exports);

}  // namespace ballast::node
