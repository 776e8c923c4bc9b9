#include "errors.h"

#include <string>

#include "addon.h"

namespace ballast::node {

Napi::Value error_value(Napi::Env env, const Error& error) {
  return Addon::of(env).make_error.Call({Napi::String::New(env, std::string(name(error.code))),
                                         Napi::String::New(env, error.message), Napi::Number::New(env, error.system_error)});
}

Napi::Value throw_error(Napi::Env env, const Error& error) {
  const Napi::Value value = error_value(env, error);
  if (!env.IsExceptionPending()) napi_throw(env, value);
  return env.Undefined();
}

}  // namespace ballast::node
