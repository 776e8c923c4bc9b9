#pragma once

#include <cstdint>

#include <ballast/error.h>
#include <ballast/tensor.h>

#include "base/bytes.h"
#include "format/mlx_json/text_window.h"
#include "format/tensor_table.h"
#include "source/source.h"

namespace ballast::mlx_json {

inline constexpr std::uint64_t kStride = 16'384;  // values between two checkpoints

// The position of one tensor's values in the text.
struct DataText {
  std::uint64_t begin = 0;  // the byte range of the decoded values, as in TensorInfo
  std::uint64_t end = 0;
  std::uint64_t checkpoint = 0;  // the first of its ceil(elements / kStride) entries in Document::checkpoints
  std::uint64_t text_end = 0;    // the end of the last value's text
  DType dtype = DType::kBool;
};

struct Document {
  TensorTable table;                       // offsets as if the values were packed binary, in the order of the text
  LargeVector<DataText> data;              // one per tensor
  LargeVector<std::uint64_t> checkpoints;  // positions in the text of the values 0, kStride, 2 * kStride, … of each tensor
};

struct DocumentOptions {
  std::uint64_t max_table_bytes = 100'000'000;  // limit for names, shapes, checkpoints and metadata
  std::size_t piece = TextWindow::kPiece;
};

// Scans the whole text once and checks the JSON, the shapes and the number of values. Whether a value fits its dtype is checked
// when it is read. Uses memory for the table and one piece, whatever the length of the text.
Result<Document> read_document(const Source& text, const DocumentOptions& options = {});

}  // namespace ballast::mlx_json
