#include "format/mlx_json/writer.h"

#include <cassert>
#include <iterator>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "base/json.h"
#include "format/mlx_json/dtypes.h"

namespace ballast::mlx_json {

Result<void> check_writable(DType dtype) {
  if (find_spelling(dtype) != nullptr) return {};
  return fail(Errc::kWrite, "MLX JSON cannot store {}; convert it, for example to F32 or BF16, or exclude it", name(dtype));
}

void append_document_begin(const Metadata& metadata, std::string& out) {
  out += R"({"version":"1.0",)";
  if (!metadata.empty()) {
    out += "\n\"metadata\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!first) out += ',';
      first = false;
      append_json_string(key, out);
      out += ':';
      append_json_string(value, out);
    }
    out += "},";
  }
  out += "\n\"weights\":{";
}

void append_tensor_begin(std::string_view name, DType dtype, Shape shape, bool is_first, std::string& out) {
  const Spelling* const spelling = find_spelling(dtype);
  assert(spelling != nullptr);
  out += is_first ? "\n" : ",\n";
  append_json_string(name, out);
  fmt::format_to(std::back_inserter(out), R"(:{{"dtype":"{}","shape":[{}],"data":[)", spelling->name, fmt::join(shape, ","));
}

void append_tensor_end(std::string& out) { out += "]}"; }

void append_document_end(std::string& out) { out += "\n}}\n"; }

}  // namespace ballast::mlx_json
