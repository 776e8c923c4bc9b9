#pragma once

#include <napi.h>

namespace ballast::node {

void define_evaluate(Napi::Env env, Napi::Object& exports);

}  // namespace ballast::node
