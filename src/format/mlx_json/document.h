#pragma once

#include <cstdint>

#include <ballast/error.h>
#include <ballast/tensor.h>

#include "base/bytes.h"
#include "format/mlx_json/text_window.h"
#include "format/tensor_table.h"
#include "source/source.h"

namespace ballast::mlx_json {

inline constexpr std::uint64_t kStride = 16'384;  // values from one checkpoint to the next

// Where the values of one tensor are written.
struct DataText {
  std::uint64_t begin = 0;  // the bytes that they stand for, as in TensorInfo
  std::uint64_t end = 0;
  std::uint64_t checkpoint = 0;  // the first of its ceil(elements / kStride) entries in Document::checkpoints
  std::uint64_t text_end = 0;    // where the text of the last value is over
  DType dtype = DType::kBool;
};

struct Document {
  TensorTable table;                       // as if the values lay packed in binary, in the order of the text
  LargeVector<DataText> data;              // one each
  LargeVector<std::uint64_t> checkpoints;  // positions in the text of values 0, kStride, 2 * kStride, … of each tensor
};

struct DocumentOptions {
  std::uint64_t max_table_bytes = 100'000'000;  // of names, shapes, checkpoints and metadata
  std::size_t piece = TextWindow::kPiece;
};

// Goes over a whole text once and checks its form: all of the JSON, the shapes and the number of values. Whether each value fits
// its dtype is found out when it is read. Takes the memory of the table and of one piece, however long the text.
Result<Document> read_document(const Source& text, const DocumentOptions& options = {});

}  // namespace ballast::mlx_json
