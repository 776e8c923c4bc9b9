#include <memory>
#include <string>

#include <napi.h>

#include <ballast/version.h>

#include "addon.h"
#include "evaluate.h"
#include "examine.h"
#include "model.h"
#include "quantize.h"
#include "write.h"

namespace ballast::node {
namespace {

// (make_error): called once, before anything else.
Napi::Value set_error_factory(const Napi::CallbackInfo& info) {
  Addon::of(info.Env()).make_error = Napi::Persistent(info[0].As<Napi::Function>());
  return info.Env().Undefined();
}

// Node runs no cleanup hooks when the main thread calls process.exit().
Napi::Value shut_down(const Napi::CallbackInfo& info) {
  Addon::of(info.Env()).jobs.shut_down();
  return info.Env().Undefined();
}

Napi::Object define_all(Napi::Env env, Napi::Object exports) {
  auto* const addon = std::make_unique<Addon>(env).release();
  env.SetInstanceData(addon);  // takes ownership
  env.AddCleanupHook([](Addon* ended) { ended->jobs.shut_down(); }, addon);
  exports.Set("version", std::string(kVersion));
  exports.Set("setErrorFactory", Napi::Function::New(env, &set_error_factory));
  exports.Set("shutDown", Napi::Function::New(env, &shut_down));
  NativeModel::define(env, exports);
  define_write(env, exports);
  define_quantize(env, exports);
  define_evaluate(env, exports);
  define_examine(env, exports);
  return exports;
}

}  // namespace
}  // namespace ballast::node

NAPI_MODULE_INIT() { return Napi::RegisterModule(env, exports, ballast::node::define_all); }
