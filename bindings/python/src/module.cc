#include <nanobind/nanobind.h>

#include <ballast/version.h>

#include "bytes.h"
#include "check.h"
#include "evaluate.h"
#include "model.h"
#include "quantize.h"
#include "write.h"

NB_MODULE(_core, module) {
  namespace python = ballast::python;
  module.attr("__version__") = ballast::kVersion;
  python::bind_bytes(module);
  python::bind_model(module);
  python::bind_write(module);
  python::bind_evaluate(module);  // before what takes TokenWindows
  python::bind_quantize(module);
  python::bind_check(module);
}
