#include "format/mlx_json/writer.h"

#include <cassert>
#include <iterator>

#include <fmt/ranges.h>

#include "base/fail.h"
#include "format/mlx_json/dtypes.h"

namespace ballast::mlx_json {
namespace {

// `text` is UTF-8, which passes as it is.
void append_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += R"(\")"; break;
      case '\\': out += R"(\\)"; break;
      case '\n': out += R"(\n)"; break;
      case '\r': out += R"(\r)"; break;
      case '\t': out += R"(\t)"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace

Result<void> check_writable(DType dtype) {
  if (find_spelling(dtype) != nullptr) return {};
  return fail(Errc::kWrite, "MLX JSON cannot hold {}; convert it, to F32 or BF16 for example", name(dtype));
}

void append_document_begin(const Metadata& metadata, std::string& out) {
  out += R"({"version":"1.0",)";
  if (!metadata.empty()) {
    out += "\n\"metadata\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!first) out += ',';
      first = false;
      append_string(key, out);
      out += ':';
      append_string(value, out);
    }
    out += "},";
  }
  out += "\n\"weights\":{";
}

void append_tensor_begin(std::string_view name, DType dtype, Shape shape, bool is_first, std::string& out) {
  const Spelling* const spelling = find_spelling(dtype);
  assert(spelling != nullptr);
  out += is_first ? "\n" : ",\n";
  append_string(name, out);
  fmt::format_to(std::back_inserter(out), R"(:{{"dtype":"{}","shape":[{}],"data":[)", spelling->name, fmt::join(shape, ","));
}

void append_tensor_end(std::string& out) { out += "]}"; }

void append_document_end(std::string& out) { out += "\n}}\n"; }

}  // namespace ballast::mlx_json
