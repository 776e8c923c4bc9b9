#pragma once

#include <string>
#include <string_view>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor.h>

// Writes the parts of a document around the values, which append_values() (values.h) writes:
//
//   append_document_begin(metadata, out);
//   for each tensor: append_tensor_begin(name, dtype, shape, is_first, out);
//                    append_values(dtype, piece, out); for each further piece: out += ','; append_values(dtype, piece, out);
//                    append_tensor_end(out);
//   append_document_end(out);
namespace ballast::mlx_json {

// Fails with kWrite for dtypes that MLX JSON cannot store.
Result<void> check_writable(DType dtype);

void append_document_begin(const Metadata& metadata, std::string& out);
void append_tensor_begin(std::string_view name, DType dtype, Shape shape, bool is_first, std::string& out);
void append_tensor_end(std::string& out);
void append_document_end(std::string& out);

}  // namespace ballast::mlx_json
