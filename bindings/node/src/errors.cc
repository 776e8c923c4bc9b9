#include "errors.h"

#include <string_view>

#include "addon.h"

namespace ballast::node {
namespace {

constexpr const char* name_of(Errc code) {
  switch (code) {
    case Errc::kIo: return "ReadError";
    case Errc::kWrite: return "WriteError";
    case Errc::kCorrupt: return "CorruptError";
    case Errc::kUnsupported: return "UnsupportedError";
    case Errc::kNotFound: return "MissingError";
    case Errc::kInvalidArgument: return "ArgumentError";
    case Errc::kBelowMinimum: return "BelowMinimumError";
    case Errc::kCancelled: return "CancelledError";
  }
  return "BallastError";
}

}  // namespace

Napi::Value error_value(Napi::Env env, const Error& error) {
  return Addon::of(env).make_error.Call({Napi::String::New(env, name_of(error.code)), Napi::String::New(env, error.message),
                                         Napi::Number::New(env, error.system_error)});
}

Napi::Value throw_error(Napi::Env env, const Error& error) {
  const Napi::Value value = error_value(env, error);
  if (!env.IsExceptionPending()) napi_throw(env, value);
  return env.Undefined();
}

}  // namespace ballast::node
