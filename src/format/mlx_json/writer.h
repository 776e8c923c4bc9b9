#pragma once

#include <string>
#include <string_view>

#include <ballast/dtype.h>
#include <ballast/error.h>
#include <ballast/metadata.h>
#include <ballast/tensor.h>

// The frame of a document around what append_values() (values.h) makes of the tensors:
//
//   append_document_begin(metadata, out);
//   for each tensor: append_tensor_begin(name, dtype, shape, is_first, out);
//                    append_values(dtype, piece, out); for each further piece: out += ','; append_values(dtype, piece, out);
//                    append_tensor_end(out);
//   append_document_end(out);
namespace ballast::mlx_json {

// kWrite for the dtypes that MLX JSON has no name for.
Result<void> check_writable(DType dtype);

void append_document_begin(const Metadata& metadata, std::string& out);
void append_tensor_begin(std::string_view name, DType dtype, Shape shape, bool is_first, std::string& out);
void append_tensor_end(std::string& out);
void append_document_end(std::string& out);

}  // namespace ballast::mlx_json
