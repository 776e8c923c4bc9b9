#pragma once

#include <utility>

#include <napi.h>

#include <ballast/error.h>

namespace ballast::node {

// An object of the class that stands for the error's kind.
Napi::Value error_value(Napi::Env env, const Error& error);

// Throws it once the native function returns, which has to be at once.
Napi::Value throw_error(Napi::Env env, const Error& error);
Napi::Value throw_closed(Napi::Env env);

}  // namespace ballast::node
