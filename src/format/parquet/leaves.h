#pragma once

#include <array>

#include <parquet/schema.h>

#include <ballast/error.h>

#include "format/parquet/columns.h"

namespace ballast::parquet {

// The index of a column in a file and the meaning of its definition levels.
struct Leaf {
  int index = 0;
  std::int16_t present = 0;  // lowest definition level of a row that is not null
  std::int16_t full = 0;     // definition level of a value
};
using Leaves = std::array<Leaf, kColumns.size()>;

// Finds all columns of kColumns in a schema and checks their types. Ignores other columns. A column that must not contain nulls
// may still be declared nullable.
Result<Leaves> find_leaves(const ::parquet::SchemaDescriptor& schema);

}  // namespace ballast::parquet
