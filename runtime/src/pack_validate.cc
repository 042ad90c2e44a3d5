// Each record of a pack by itself.
#include <iterator>

#include "pack_index.h"
#include "sha256.h"

namespace aotbuild {
namespace {

using format::SourceKind;
using format::Type;

constexpr uint32_t kMaxThreads = 1024;  // of a block, on every GPU there is
constexpr uint32_t kMaxRank = 8;
constexpr uint32_t kMaxColumns = 32;
constexpr uint32_t kMaxDescriptorRank = 5;

bool names_tensor(SourceKind kind) {
  return kind == SourceKind::kPointer || kind == SourceKind::kSize || kind == SourceKind::kStride ||
         kind == SourceKind::kDtype || kind == SourceKind::kPresent;
}

// The name and dim of a source are used or zero, by its kind.
void check_source(const Record& record, SourceKind kind, uint32_t name, uint8_t dim) {
  if (names_tensor(kind) || kind == SourceKind::kValue) {
    record.text("source name", name);
  } else {
    record.equal("source name", name, 0);
  }
  const bool has_dim = kind == SourceKind::kSize || kind == SourceKind::kStride;
  record.in_range("source dim", dim, 0, has_dim ? kMaxRank - 1 : 0);
}

void check_operator(const Index& index, size_t i) {
  const format::Operator& op = index.operators[i];
  const Record record(index, format::kOperators, i);
  record.text("name", op.name);
  if (i > 0) {
    record.after("name", index.string(index.operators[i - 1].name), index.string(op.name));
  }
  record.in_range("column_count", op.column_count, 1, kMaxColumns);
  record.part("tensors", op.first_tensor, op.tensor_count, index.tensors.size());
  record.part("columns", op.first_column, op.column_count, index.columns.size());
  record.part("rows", op.first_row, op.row_count, index.rows.size());
  record.part("values", op.first_value, uint64_t{op.row_count} * op.column_count,
              index.values.size());
  record.zero(&op.reserved, sizeof(op.reserved));
}

void check_tensor(const Index& index, size_t i) {
  const format::Tensor& tensor = index.tensors[i];
  const Record record(index, format::kTensors, i);
  record.text("name", tensor.name);
  record.in_range("rank", tensor.rank, 1, kMaxRank);
  record.only_bits("flags", tensor.flags,
                   format::kOptional | format::kContiguousLast | format::kWritten);
  record.zero(tensor.reserved, sizeof(tensor.reserved));
}

void check_column(const Index& index, size_t i) {
  const format::Column& column = index.columns[i];
  const Record record(index, format::kColumns, i);
  record.text("name", column.name);
  record.in_range("mode", static_cast<uint8_t>(column.mode), 0, 3);
  record.in_range("role", column.role, 0, 1);
  record.zero(column.reserved, sizeof(column.reserved));
  if (column.mode == format::Mode::kSlack) {
    record.equal("source kind", static_cast<uint8_t>(column.source_kind), 0);
    record.equal("source dim", column.source_dim, 0);
    record.equal("source name", column.source_name, 0);
    return;
  }
  record.equal("reference", column.reference, format::kNone);
  switch (column.source_kind) {
    case SourceKind::kSize:
    case SourceKind::kStride:
    case SourceKind::kValue:
    case SourceKind::kDtype:
    case SourceKind::kPresent:
      break;
    default:
      record.fail("source kind", std::to_string(static_cast<uint8_t>(column.source_kind)),
                  "SIZE, STRIDE, VALUE, DTYPE or PRESENT");
  }
  check_source(record, column.source_kind, column.source_name, column.source_dim);
}

void check_row(const Index& index, size_t i) {
  const format::Row& row = index.rows[i];
  const Record record(index, format::kRows, i);
  if (row.image == format::kNone) {
    record.text("reason", row.reason);
    return;
  }
  record.number("image", row.image, index.images.size());
  record.equal("reason", row.reason, 0);
}

void check_alignment(const Record& record, const char* field, uint32_t align) {
  if (align == 0 || (align & (align - 1)) != 0) {
    record.fail(field, std::to_string(align), "a power of two");
  }
}

void check_image(const Index& index, size_t i) {
  const format::Image& image = index.images[i];
  const Record record(index, format::kImages, i);
  record.text("name", image.name);
  if (i > 0) {
    record.after("name", index.string(index.images[i - 1].name), index.string(image.name));
  }
  record.number("blob", image.blob, index.blobs.size());
  record.text("symbol", image.symbol);
  record.text_or_empty("options", image.options);
  record.part("arguments", image.first_argument, image.argument_count, index.arguments.size());
  record.part("factors", image.first_factor, image.factor_count, index.factors.size());
  record.in_range("threads", image.threads, 1, kMaxThreads);
  record.in_range("num_ctas", image.num_ctas, 1, UINT32_MAX);
  for (const uint32_t blocks : image.cluster) {
    record.in_range("cluster", blocks, 1, UINT32_MAX);
  }
  record.only_bits("flags", image.flags, format::kCooperative | format::kProgrammatic);
  check_alignment(record, "global_scratch_align", image.global_scratch_align);
  check_alignment(record, "profile_scratch_align", image.profile_scratch_align);
  record.zero(image.reserved, sizeof(image.reserved));
}

// Whether a source can fill an argument of a type.
bool can_fill(Type type, SourceKind source) {
  switch (source) {
    case SourceKind::kDescriptor:
      return type == Type::kDescriptor;
    case SourceKind::kPointer:
    case SourceKind::kGlobalScratch:
    case SourceKind::kProfileScratch:
      return type == Type::kPointer;
    case SourceKind::kConstant:
      return type != Type::kDescriptor;
    default:
      return type != Type::kPointer && type != Type::kDescriptor;
  }
}

void check_argument(const Index& index, size_t i) {
  const format::Argument& argument = index.arguments[i];
  const Record record(index, format::kArguments, i);
  record.text("name", argument.name);
  record.in_range("type", static_cast<uint8_t>(argument.type), 1,
                  static_cast<uint8_t>(Type::kDescriptor));
  record.in_range("source kind", static_cast<uint8_t>(argument.source_kind), 0,
                  static_cast<uint8_t>(SourceKind::kProfileScratch));
  if (!can_fill(argument.type, argument.source_kind)) {
    record.fail("source kind", std::to_string(static_cast<uint8_t>(argument.source_kind)),
                "one that fills type " + std::to_string(static_cast<uint8_t>(argument.type)));
  }
  check_source(record, argument.source_kind, argument.source_name, argument.source_dim);
  record.only_bits("flags", argument.flags,
                   argument.source_kind == SourceKind::kPointer ? format::kRange32 : 0);
  record.in_range("divisibility", argument.divisibility, 1, UINT32_MAX);
  if (argument.source_kind == SourceKind::kDescriptor) {
    // As an unsigned number, a negative constant is above any table.
    record.number("descriptor", static_cast<uint64_t>(argument.constant), index.descriptors.size());
  }
  record.zero(&argument.reserved, sizeof(argument.reserved));
}

void check_descriptor(const Index& index, size_t i) {
  const format::Descriptor& descriptor = index.descriptors[i];
  const Record record(index, format::kDescriptors, i);
  record.text("tensor", descriptor.tensor);
  const bool cuda = index.header->vendor == static_cast<uint32_t>(format::Vendor::kCuda);
  record.equal("form", static_cast<uint8_t>(descriptor.form),
               static_cast<uint8_t>(cuda ? format::DescriptorForm::kTensorMap
                                         : format::DescriptorForm::kTdm));
  record.in_range("rank", descriptor.rank, 1, kMaxDescriptorRank);
  record.in_range("element bits", descriptor.element_bits, 1, 64);
  record.only_bits("flags", descriptor.flags,
                   format::kFp4Padded | format::kNanFill | format::kRoundToTf32);
  for (size_t dim = 0; dim < std::size(descriptor.box); ++dim) {
    const bool used = dim < descriptor.rank;
    record.in_range("box", descriptor.box[dim], used ? 1 : 0, used ? UINT32_MAX : 0);
  }
  record.zero(descriptor.reserved, sizeof(descriptor.reserved));
}

void check_factor(const Index& index, size_t i) {
  const format::Factor& factor = index.factors[i];
  const Record record(index, format::kFactors, i);
  record.in_range("axis", factor.axis, 0, 2);
  if (factor.source_kind != SourceKind::kSize && factor.source_kind != SourceKind::kValue) {
    record.fail("source kind", std::to_string(static_cast<uint8_t>(factor.source_kind)),
                "SIZE or VALUE");
  }
  check_source(record, factor.source_kind, factor.source_name, factor.source_dim);
  record.in_range("divisor", factor.divisor, 1, UINT32_MAX);
  record.zero(&factor.reserved0, sizeof(factor.reserved0));
  record.zero(&factor.reserved1, sizeof(factor.reserved1));
}

// Blobs fill the rest of the file, one after the other.
void check_blobs(const Index& index) {
  uint64_t next = index.header->index_size;
  for (size_t i = 0; i < index.blobs.size(); ++i) {
    const format::Blob& blob = index.blobs[i];
    const Record record(index, format::kBlobs, i);
    record.equal("offset", blob.offset, next);
    record.in_range("size", blob.size, 1, index.header->file_size - next);
    record.in_range("raw_size", blob.raw_size, 1, format::kMaxRawSize);
    record.zero(&blob.reserved, sizeof(blob.reserved));
    if (i > 0) {
      constexpr size_t kSize = sizeof(blob.sha256);
      record.after("sha256", hex(index.blobs[i - 1].sha256, kSize), hex(blob.sha256, kSize));
    }
    next += blob.size;
  }
  if (next != index.header->file_size) {
    fail_corrupt(index.path, "blobs end at offset " + std::to_string(next) +
                                 ", expected the end of the file, " +
                                 std::to_string(index.header->file_size));
  }
}

void check_each(const Index& index, size_t count, void (*check)(const Index&, size_t)) {
  for (size_t i = 0; i < count; ++i) {
    check(index, i);
  }
}

}  // namespace

void check_records(const Index& index) {
  check_each(index, index.operators.size(), check_operator);
  check_each(index, index.tensors.size(), check_tensor);
  check_each(index, index.columns.size(), check_column);
  check_each(index, index.rows.size(), check_row);
  check_each(index, index.images.size(), check_image);
  check_each(index, index.arguments.size(), check_argument);
  check_each(index, index.descriptors.size(), check_descriptor);
  check_each(index, index.factors.size(), check_factor);
  check_blobs(index);
}

}  // namespace aotbuild
