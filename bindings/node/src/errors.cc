#include "errors.h"

#include <string>

#include "addon.h"

namespace ballast::node {

namespace {

Napi::Value make(Napi::Env env, const std::string& kind, const std::string& message, int system_error) {
  return Addon::of(env).make_error.Call(
      {Napi::String::New(env, kind), Napi::String::New(env, message), Napi::Number::New(env, system_error)});
}

Napi::Value throw_value(Napi::Env env, const Napi::Value& value) {
  if (!env.IsExceptionPending()) napi_throw(env, value);
  return env.Undefined();
}

}  // namespace

Napi::Value error_value(Napi::Env env, const Error& error) {
  return make(env, std::string(name(error.code)), error.message, error.system_error);
}

Napi::Value throw_error(Napi::Env env, const Error& error) { return throw_value(env, error_value(env, error)); }

Napi::Value throw_closed(Napi::Env env) { return throw_value(env, make(env, "ClosedError", "the model is closed", 0)); }

}  // namespace ballast::node
