#pragma once

#include <memory>

#include "format/mlx_json/document.h"
#include "source/source.h"

namespace ballast::mlx_json {

// Presents the values of a document as packed binary, in the order of its table. Reading decodes the text, starting at the
// nearest checkpoint, in the memory of one piece. A value that does not fit its dtype is kCorrupt; the error has the element and
// the byte of the text, and the caller adds the tensor. map() is not available. `document.table` is not used.
std::unique_ptr<Source> open_values(std::unique_ptr<Source> text, Document document, std::size_t piece = TextWindow::kPiece);

}  // namespace ballast::mlx_json
