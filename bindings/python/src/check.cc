#include "check.h"

#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <ballast/diff.h>
#include <ballast/verify.h>

#include "interrupts.h"
#include "long_work.h"
#include "model.h"
#include "values.h"

namespace ballast::python {
namespace {

namespace nb = nanobind;

nb::dict verify(const FsPath& path, bool values, bool sha256, unsigned threads, const std::string& component,
                const std::string& variant, nb::object progress) {
  LongWork work(std::move(progress));
  const VerifyReport report = work.run([&] {
    return verify_model(path.get(), {.open = {.component = component, .variant = variant, .stop = was_interrupted},
                                     .values = values,
                                     .sha256 = sha256,
                                     .work = work.options(threads)});
  });
  nb::list defects;
  for (const Defect& defect : report.defects) defects.append(nb::make_tuple(defect.check, defect.message));
  nb::dict checksums;
  for (const VerifiedFile& file : report.files) checksums[path_text(file.path)] = file.sha256;
  nb::dict made;
  made["ok"] = report.ok();
  made["checks"] = report.checks;
  made["defects"] = defects;
  made["skipped"] = report.skipped;
  made["warnings"] = report.warnings;
  made["tensors"] = report.tensors;
  made["bytes"] = report.bytes;
  made["sha256"] = checksums;
  made["components"] = report.components;
  return made;
}

nb::dict describe(const TensorDifference& tensor) {
  nb::dict made;
  made["name"] = tensor.name;
  made["dtype"] = nb::make_tuple(name(tensor.dtype_a), name(tensor.dtype_b));
  made["shape"] = nb::make_tuple(tuple_of(tensor.shape_a), tuple_of(tensor.shape_b));
  const auto& values = tensor.values;
  made["different_values"] = values ? nb::cast(values->count) : nb::none();
  made["values"] = values ? nb::cast(values->values) : nb::none();
  made["first_difference"] = values && values->count > 0 ? nb::cast(values->first) : nb::none();
  made["max_difference"] = values ? nb::cast(values->max_difference) : nb::none();
  return made;
}

nb::dict diff(const OpenModel& a, const OpenModel& b, unsigned threads, nb::object progress) {
  LongWork work(std::move(progress));
  const auto first = a.shared();
  const auto second = b.shared();
  const DiffReport report = work.run([&] { return diff_models(*first, *second, work.options(threads)); });
  nb::list changed;
  for (const TensorDifference& tensor : report.changed) changed.append(describe(tensor));
  nb::dict made;
  made["equal"] = report.equal();
  made["same"] = report.same;
  made["only_in_a"] = report.only_a;
  made["only_in_b"] = report.only_b;
  made["changed"] = changed;
  made["metadata"] = report.metadata;
  return made;
}

}  // namespace

void bind_check(nb::module_& module) {
  module.def("verify", &verify, nb::arg("path"), nb::kw_only(), nb::arg("values"), nb::arg("sha256"), nb::arg("threads"),
             nb::arg("component"), nb::arg("variant"), nb::arg("progress").none());
  module.def("diff", &diff, nb::arg("a"), nb::arg("b"), nb::kw_only(), nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace ballast::python
