#pragma once

#include <array>

#include <parquet/schema.h>

#include <ballast/error.h>

#include "format/parquet/columns.h"

namespace ballast::parquet {

// Where the values of a column lie in a file, and what its levels mean.
struct Leaf {
  int index = 0;
  std::int16_t present = 0;  // the definition level from which on a row is not null
  std::int16_t full = 0;     // the one at which there is a value
};
using Leaves = std::array<Leaf, kColumns.size()>;

// Finds all columns in a schema, whatever else there is, and checks their types. A column may be declared nullable that holds no
// nulls.
Result<Leaves> find_leaves(const ::parquet::SchemaDescriptor& schema);

}  // namespace ballast::parquet
