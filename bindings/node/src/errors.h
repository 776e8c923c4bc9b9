#pragma once

#include <utility>

#include <napi.h>

#include <ballast/error.h>

namespace ballast::node {

// An Error object of the class for the error's code.
Napi::Value error_value(Napi::Env env, const Error& error);

// Sets the pending exception. The caller must return to JavaScript at once.
Napi::Value throw_error(Napi::Env env, const Error& error);
Napi::Value throw_closed(Napi::Env env);

}  // namespace ballast::node
