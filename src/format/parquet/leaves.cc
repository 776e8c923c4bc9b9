#include "format/parquet/leaves.h"

#include <memory>
#include <string>

#include <parquet/types.h>

#include "base/fail.h"
#include "base/text.h"
#include "base/try.h"

namespace ballast::parquet {
namespace {

using ::parquet::ColumnDescriptor;

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kText: return "string";
    case Kind::kBytes: return "binary";
    case Kind::kBool: return "bool";
    case Kind::kUint8: return "uint8";
    case Kind::kUint32: return "uint32";
    case Kind::kUint64: return "uint64";
    case Kind::kUint64List: return "list<uint64>";
    case Kind::kFloatList: return "list<float>";
  }
  return "?";
}

bool is_list(Kind kind) { return kind == Kind::kUint64List || kind == Kind::kFloatList; }

bool is_unsigned(const ColumnDescriptor& leaf, ::parquet::Type::type physical, int bits) {
  const auto type = std::dynamic_pointer_cast<const ::parquet::IntLogicalType>(leaf.logical_type());
  return leaf.physical_type() == physical && type != nullptr && !type->is_signed() && type->bit_width() == bits;
}

bool has_type(const ColumnDescriptor& leaf, Kind kind) {
  using ::parquet::Type;
  const bool is_plain = leaf.logical_type()->is_none();
  switch (kind) {
    case Kind::kText: return leaf.physical_type() == Type::BYTE_ARRAY && leaf.logical_type()->is_string();
    case Kind::kBytes: return leaf.physical_type() == Type::BYTE_ARRAY && is_plain;
    case Kind::kBool: return leaf.physical_type() == Type::BOOLEAN && is_plain;
    case Kind::kFloatList: return leaf.physical_type() == Type::FLOAT && is_plain;
    case Kind::kUint8: return is_unsigned(leaf, Type::INT32, 8);
    case Kind::kUint32: return is_unsigned(leaf, Type::INT32, 32);
    case Kind::kUint64:
    case Kind::kUint64List: return is_unsigned(leaf, Type::INT64, 64);
  }
  return false;
}

// A group annotated as a list, with one repeated node that is the value or contains only the value.
bool is_list_of_values(const ::parquet::schema::Node& field, const ColumnDescriptor& leaf) {
  return field.is_group() && field.logical_type()->is_list() && !field.is_repeated() && leaf.max_repetition_level() == 1 &&
         leaf.path()->ToDotVector().size() <= 3;
}

std::string describe(const ::parquet::schema::Node& field, const ColumnDescriptor& leaf) {
  std::string type =
      fmt::format("{}{}", field.is_group() ? "a group that contains " : "", ::parquet::TypeToString(leaf.physical_type()));
  if (!leaf.logical_type()->is_none()) type += fmt::format(" {}", leaf.logical_type()->ToString());
  return escape(type);
}

Result<Leaf> find_leaf(const ::parquet::SchemaDescriptor& schema, const Column& column) {
  int index = -1;
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (schema.GetColumnRoot(i)->name() != column.name) continue;
    if (index >= 0)
      return fail(Errc::kCorrupt, "column '{}': there are several columns of this name, or it is nested", column.name);
    index = i;
  }
  if (index < 0) return fail(Errc::kCorrupt, "column '{}' is missing", column.name);

  const ::parquet::schema::Node& field = *schema.GetColumnRoot(index);
  const ColumnDescriptor& leaf = *schema.Column(index);
  const bool has_form = is_list(column.kind) ? is_list_of_values(field, leaf) : field.is_primitive() && !field.is_repeated();
  if (!has_form || !has_type(leaf, column.kind)) {
    return fail(Errc::kCorrupt, "column '{}' is {}, expected {}", column.name, describe(field, leaf), type_name(column.kind));
  }
  return Leaf{
      .index = index, .present = static_cast<std::int16_t>(field.is_optional() ? 1 : 0), .full = leaf.max_definition_level()};
}

}  // namespace

Result<Leaves> find_leaves(const ::parquet::SchemaDescriptor& schema) {
  Leaves leaves{};
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto leaf = TRY(find_leaf(schema, kColumns[i]));
    leaves[i] = leaf;
  }
  return leaves;
}

}  // namespace ballast::parquet
