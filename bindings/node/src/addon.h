#pragma once

#include <napi.h>

#include "jobs.h"

namespace ballast::node {

// The state of one environment.
struct Addon {
  explicit Addon(Napi::Env env) : jobs(env) {}

  static Addon& of(Napi::Env env) { return *env.GetInstanceData<Addon>(); }

  Jobs jobs;
  Napi::FunctionReference make_error;  // (name of the class, message, errno)
  Napi::FunctionReference model;       // constructors of native objects
  Napi::FunctionReference sink;
};

}  // namespace ballast::node
