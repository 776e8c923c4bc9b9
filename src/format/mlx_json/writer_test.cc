#include "format/mlx_json/writer.h"

#include <vector>

#include <gmock/gmock.h>

#include "format/mlx_json/values.h"
#include "tests/support/files.h"

namespace ballast::mlx_json {
namespace {

using test::as_bytes;
using test::fails;
using test::raw;

TEST(MlxJsonWriter, DocumentHasOneLinePerTensor) {
  std::string out;
  const std::vector<std::uint64_t> matrix{2, 2};
  append_document_begin({{"format", "pt"}, {"note", "a\"b\\c\n\x01é"}}, out);
  append_tensor_begin("model.w", DType::kF32, matrix, /*is_first=*/true, out);
  append_values(DType::kF32, as_bytes(raw({1.0F, -0.5F})), out);
  out += ',';
  append_values(DType::kF32, as_bytes(raw({2.0F, 3.0F})), out);
  append_tensor_end(out);
  append_tensor_begin("s\t\"", DType::kI64, {}, /*is_first=*/false, out);
  append_values(DType::kI64, as_bytes(raw<std::int64_t>({-7})), out);
  append_tensor_end(out);
  append_document_end(out);
  EXPECT_EQ(out,
            "{\"version\":\"1.0\",\n"
            "\"metadata\":{\"format\":\"pt\",\"note\":\"a\\\"b\\\\c\\n\\u0001é\"},\n"
            "\"weights\":{\n"
            "\"model.w\":{\"dtype\":\"float32\",\"shape\":[2,2],\"data\":[1,-0.5,2,3]},\n"
            "\"s\\t\\\"\":{\"dtype\":\"int64\",\"shape\":[],\"data\":[-7]}\n"
            "}}\n");
}

TEST(MlxJsonWriter, DocumentWithoutTensorsOrMetadata) {
  std::string out;
  append_document_begin({}, out);
  append_document_end(out);
  EXPECT_EQ(out, "{\"version\":\"1.0\",\n\"weights\":{\n}}\n");
}

TEST(MlxJsonWriter, DtypesWithoutANameCannotBeWritten) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kBool, DType::kU64}) EXPECT_TRUE(check_writable(dtype));
  EXPECT_TRUE(fails(check_writable(DType::kF8E4M3), Errc::kWrite,
                    "MLX JSON cannot store F8_E4M3; convert it, for example to F32 or BF16, or exclude it"));
  for (const DType dtype : {DType::kF4, DType::kF6E2M3, DType::kF8E8M0, DType::kC64}) EXPECT_FALSE(check_writable(dtype));
}

}  // namespace
}  // namespace ballast::mlx_json
