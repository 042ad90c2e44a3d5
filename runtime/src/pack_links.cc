// What the records of a pack say of each other.
#include <algorithm>
#include <vector>

#include "pack_index.h"
#include "text.h"

namespace aotbuild {
namespace {

using format::SourceKind;

// One operator's view of the tables.
class OperatorCheck {
 public:
  OperatorCheck(const Index& index, size_t number)
      : index_(index),
        op_(index.operators[number]),
        record_(index, format::kOperators, number),
        tensors_(index.tensors.sub(op_.first_tensor, op_.tensor_count)),
        columns_(index.columns.sub(op_.first_column, op_.column_count)) {}

  void check_tensors() const;
  void check_columns() const;
  void check_row_order() const;
  void check_image(const format::Image& image) const;

 private:
  const format::Tensor& tensor(const Record& record, const char* field, uint32_t name) const;
  void check_source(const Record& record, SourceKind kind, uint32_t name, uint8_t dim) const;
  void check_argument(size_t number) const;

  const Index& index_;
  const format::Operator& op_;
  Record record_;
  Span<format::Tensor> tensors_;
  Span<format::Column> columns_;
};

// The operator's tensor of that name.
const format::Tensor& OperatorCheck::tensor(const Record& record, const char* field,
                                            uint32_t name) const {
  const std::string_view wanted = index_.string(name);
  const auto* found = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& tensor) {
    return index_.string(tensor.name) == wanted;
  });
  if (found == tensors_.end()) {
    record.fail(field, quoted(wanted),
                "a tensor of operator " + quoted(index_.string(op_.name)) + ", which uses it");
  }
  return *found;
}

void OperatorCheck::check_source(const Record& record, SourceKind kind, uint32_t name,
                                 uint8_t dim) const {
  switch (kind) {
    case SourceKind::kPointer:
    case SourceKind::kDtype:
    case SourceKind::kPresent:
      tensor(record, "source name", name);
      break;
    case SourceKind::kSize:
    case SourceKind::kStride:
      record.in_range("source dim", dim, 0, tensor(record, "source name", name).rank - 1U);
      break;
    default:
      break;
  }
}

void OperatorCheck::check_tensors() const {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const format::Tensor& tensor = tensors_[i];
    if (tensor.same_dtype_as != format::kNone) {
      const Record record(index_, format::kTensors, op_.first_tensor + i);
      record.number("same_dtype_as", tensor.same_dtype_as, tensors_.size());
    }
    names.push_back(index_.string(tensor.name));
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    record_.fail("tensors", "two named " + quoted(*twin), "each name once");
  }
}

void OperatorCheck::check_columns() const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const format::Column& column = columns_[i];
    const Record record(index_, format::kColumns, op_.first_column + i);
    if (column.mode != format::Mode::kSlack) {
      check_source(record, column.source_kind, column.source_name, column.source_dim);
      continue;
    }
    record.number("reference", column.reference, columns_.size());
    if (columns_[column.reference].mode == format::Mode::kSlack) {
      record.fail("reference", std::to_string(column.reference), "a column that is not SLACK");
    }
  }
}

void OperatorCheck::check_row_order() const {
  const auto* column = std::find_if(columns_.begin(), columns_.end(),
                                    [](const auto& c) { return c.mode != format::Mode::kEqual; });
  const auto leading = column - columns_.begin();
  const int64_t* values = index_.values.begin() + op_.first_value;
  for (uint32_t i = 1; i < op_.row_count; ++i) {
    const int64_t* row = values + size_t{i} * op_.column_count;
    const int64_t* before = row - op_.column_count;
    if (std::lexicographical_compare(row, row + leading, before, before + leading)) {
      const Record record(index_, format::kRows, size_t{op_.first_row} + i);
      record.fail("order of EQUAL values", "below that of the row before", "ascending order");
    }
  }
}

void OperatorCheck::check_argument(size_t number) const {
  const format::Argument& argument = index_.arguments[number];
  const Record record(index_, format::kArguments, number);
  check_source(record, argument.source_kind, argument.source_name, argument.source_dim);
  if (argument.source_kind == SourceKind::kDescriptor) {
    const auto descriptor = static_cast<size_t>(argument.constant);
    const Record of(index_, format::kDescriptors, descriptor);
    const format::Tensor& base = tensor(of, "tensor", index_.descriptors[descriptor].tensor);
    of.equal("rank", index_.descriptors[descriptor].rank, base.rank);
  }
}

void OperatorCheck::check_image(const format::Image& image) const {
  for (size_t i = 0; i < image.argument_count; ++i) {
    check_argument(image.first_argument + i);
  }
  for (size_t i = 0; i < image.factor_count; ++i) {
    const format::Factor& factor = index_.factors[image.first_factor + i];
    const Record record(index_, format::kFactors, image.first_factor + i);
    check_source(record, factor.source_kind, factor.source_name, factor.source_dim);
  }
}

}  // namespace

void check_links(const Index& index) {
  // Operator that checked an image last, so that many rows of one image cost one check.
  std::vector<uint32_t> checked_by(index.images.size(), format::kNone);
  for (uint32_t i = 0; i < index.operators.size(); ++i) {
    const OperatorCheck check(index, i);
    check.check_tensors();
    check.check_columns();
    check.check_row_order();
    const format::Operator& op = index.operators[i];
    for (const format::Row& row : index.rows.sub(op.first_row, op.row_count)) {
      if (row.image != format::kNone && checked_by[row.image] != i) {
        check.check_image(index.images[row.image]);
        checked_by[row.image] = i;
      }
    }
  }
}

}  // namespace aotbuild
