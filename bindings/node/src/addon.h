#pragma once

#include <napi.h>

#include "jobs.h"

namespace ballast::node {

// What each environment has of its own.
struct Addon {
  explicit Addon(Napi::Env env) : jobs(env) {}

  static Addon& of(Napi::Env env) { return *env.GetInstanceData<Addon>(); }

  Jobs jobs;
  Napi::FunctionReference make_error;  // of (name of the class, message, errno)
  Napi::FunctionReference model;       // the constructors of native objects
  Napi::FunctionReference sink;
};

}  // namespace ballast::node
