#include "base/dl_error.h"

#include <dlfcn.h>

#include "base/text.h"

namespace ballast {

std::string last_dl_error() {
  const char* const message = ::dlerror();  // NOLINT(concurrency-mt-unsafe): per thread in glibc
  return message == nullptr ? "unknown error" : escape(message);
}

}  // namespace ballast
