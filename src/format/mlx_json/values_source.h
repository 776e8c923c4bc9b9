#pragma once

#include <memory>

#include "format/mlx_json/document.h"
#include "source/source.h"

namespace ballast::mlx_json {

// The values of a document as if they lay packed in binary, in the order of its table: reading decodes the text, from the nearest
// checkpoint on, in the memory of one piece. A value that its dtype cannot hold is kCorrupt; errors name the value's index and
// the byte of the text, the caller knows the tensor. There is nothing to map. The document's table is not needed any more.
std::unique_ptr<Source> open_values(std::unique_ptr<Source> text, Document document, std::size_t piece = TextWindow::kPiece);

}  // namespace ballast::mlx_json
