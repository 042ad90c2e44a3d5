// Records of a pack: each wrong in one field.
#include <gtest/gtest.h>

#include <utility>

#include "pack_spoil.h"

namespace aotbuild {
namespace {

using format::SourceKind;
using namespace test;

TEST(PackRecords, Operators) {
  corrupt([](PackBuilder& b) { b.operators[0].name = 0; }, {"operators[0]", "name is empty"});
  corrupt([](PackBuilder& b) { b.operators[0].column_count = 0; }, {"column_count is 0", "1..32"});
  corrupt([](PackBuilder& b) { b.operators[0].column_count = 33; }, {"column_count is 33"});
  corrupt([](PackBuilder& b) { b.operators[0].first_tensor = 0xFFFFFFFF; },
          {"tensors is 3 from 4294967295", "table of 3"});
  corrupt([](PackBuilder& b) { b.operators[0].tensor_count = 0xFFFFFFFF; },
          {"tensors is 4294967295"});
  corrupt([](PackBuilder& b) { b.operators[0].first_column = 1; }, {"columns is 4 from 1"});
  corrupt([](PackBuilder& b) { b.operators[0].row_count = 5; }, {"rows is 5 from 0"});
  corrupt([](PackBuilder& b) { b.operators[0].first_value = UINT64_MAX - 15; },
          {"values is 16 from 18446744073709551600"});
  corrupt([](PackBuilder& b) { b.values.pop_back(); }, {"values is 16 from 0", "table of 15"});
  corrupt([](PackBuilder& b) { b.operators[0].reserved = 1; }, {"operators[0]", "reserved"});
  for (const char* second : {"forward", "backward"}) {  // twice, and out of order
    corrupt(
        [&](PackBuilder& b) {
          b.operators.push_back(b.operators[0]);
          b.operators[1].name = b.text(second);
        },
        {"operators[1]", "sort after", "'forward'"});
  }
}

TEST(PackRecords, Tensors) {
  corrupt([](PackBuilder& b) { b.tensors[1].name = 0; }, {"tensors[1]", "name is empty"});
  corrupt([](PackBuilder& b) { b.tensors[0].rank = 0; }, {"tensors[0]", "rank is 0", "1..8"});
  corrupt([](PackBuilder& b) { b.tensors[0].rank = 9; }, {"rank is 9"});
  corrupt([](PackBuilder& b) { b.tensors[0].flags = 8; }, {"flags is 8"});
  corrupt([](PackBuilder& b) { b.tensors[0].reserved[11] = 1; }, {"tensors[0]", "reserved"});
  corrupt([](PackBuilder& b) { b.tensors[1].same_dtype_as = 3; }, {"tensors[1]", "same_dtype_as"});
  corrupt([](PackBuilder& b) { b.tensors[1].name = b.tensors[0].name; },
          {"operators[0]", "two named 'x'"});
}

TEST(PackRecords, Columns) {
  corrupt([](PackBuilder& b) { b.columns[0].name = 0; }, {"columns[0]", "name is empty"});
  corrupt([](PackBuilder& b) { b.columns[0].mode = format::Mode{4}; }, {"mode is 4"});
  corrupt([](PackBuilder& b) { b.columns[0].role = 2; }, {"role is 2"});
  corrupt([](PackBuilder& b) { b.columns[0].reference = 0; }, {"reference is 0"});
  corrupt([](PackBuilder& b) { b.columns[0].reserved[0] = 1; }, {"columns[0]", "reserved"});
  for (const uint8_t kind : {0, 1, 6, 8, 9, 10, 255}) {
    corrupt([&](PackBuilder& b) { b.columns[0].source_kind = SourceKind{kind}; },
            {"columns[0]", "source kind is " + std::to_string(kind)});
  }
  corrupt([](PackBuilder& b) { b.columns[0].source_name = 0; }, {"source name is empty"});
  corrupt([](PackBuilder& b) { b.columns[0].source_dim = 1; }, {"source dim is 1", "0..0"});
  corrupt([](PackBuilder& b) { b.columns[1].source_dim = 8; }, {"source dim is 8"});
  corrupt([](PackBuilder& b) { b.columns[1].source_dim = 2; }, {"source dim is 2", "0..1"});
  corrupt([](PackBuilder& b) { b.columns[1].source_name = b.text("absent"); },
          {"columns[1]", "'absent'", "a tensor of operator 'forward'"});
}

TEST(PackRecords, SlackColumns) {
  corrupt([](PackBuilder& b) { b.columns[3].reference = 4; }, {"columns[3]", "reference"});
  corrupt([](PackBuilder& b) { b.columns[3].reference = format::kNone; }, {"reference"});
  corrupt([](PackBuilder& b) { b.columns[3].reference = 3; }, {"not SLACK"});
  corrupt([](PackBuilder& b) { b.columns[3].source_kind = SourceKind::kValue; }, {"source kind"});
  corrupt([](PackBuilder& b) { b.columns[3].source_dim = 1; }, {"source dim"});
  corrupt([](PackBuilder& b) { b.columns[3].source_name = b.text("x"); }, {"source name"});
}

TEST(PackRecords, Rows) {
  corrupt([](PackBuilder& b) { b.rows[1].image = 3; }, {"rows[1]", "image is 3", "below 3"});
  corrupt([](PackBuilder& b) { b.rows[1].reason = b.text("why"); }, {"rows[1]", "reason"});
  corrupt([](PackBuilder& b) { b.rows[3].reason = 0; }, {"rows[3]", "reason is empty"});
  corrupt([](PackBuilder& b) { b.rows[3].reason = 1 << 20; }, {"rows[3]", "reason"});
  corrupt([](PackBuilder& b) { b.values[4] = kFloat32; }, {"rows[2]", "ascending"});
}

TEST(PackRecords, Images) {
  corrupt([](PackBuilder& b) { b.images[0].name = 0; }, {"images[0]", "name is empty"});
  corrupt([](PackBuilder& b) { b.images[1].name = b.images[0].name; }, {"images[1]", "sort after"});
  corrupt([](PackBuilder& b) { std::swap(b.images[0].name, b.images[1].name); }, {"sort after"});
  corrupt([](PackBuilder& b) { b.images[0].blob = 3; }, {"blob is 3", "below 3"});
  corrupt([](PackBuilder& b) { b.images[0].symbol = 0; }, {"symbol is empty"});
  corrupt([](PackBuilder& b) { b.images[0].options = 0xFFFFFFFF; }, {"options"});
  corrupt([](PackBuilder& b) { b.images[2].argument_count = 11; }, {"arguments is 11"});
  corrupt([](PackBuilder& b) { b.images[0].first_argument = 0xFFFFFFFF; }, {"arguments"});
  corrupt([](PackBuilder& b) { b.images[2].factor_count = 3; }, {"factors is 3"});
  corrupt([](PackBuilder& b) { b.images[0].threads = 0; }, {"threads is 0", "1..1024"});
  corrupt([](PackBuilder& b) { b.images[0].threads = 1025; }, {"threads is 1025"});
  corrupt([](PackBuilder& b) { b.images[0].num_ctas = 0; }, {"num_ctas is 0"});
  corrupt([](PackBuilder& b) { b.images[0].cluster[2] = 0; }, {"cluster is 0"});
  corrupt([](PackBuilder& b) { b.images[0].flags = 4; }, {"flags is 4"});
  corrupt([](PackBuilder& b) { b.images[0].global_scratch_align = 0; }, {"global_scratch_align"});
  corrupt([](PackBuilder& b) { b.images[0].profile_scratch_align = 3; },
          {"profile_scratch_align is 3", "power of two"});
  corrupt([](PackBuilder& b) { b.images[0].reserved[31] = 1; }, {"images[0]", "reserved"});
}

// arguments[0] is a descriptor, [1] a pointer, [3] an i64 stride, [5] an i32 size.
TEST(PackRecords, Arguments) {
  corrupt([](PackBuilder& b) { b.arguments[1].name = 0; }, {"arguments[1]", "name is empty"});
  corrupt([](PackBuilder& b) { b.arguments[1].type = format::Type{0}; }, {"type is 0"});
  corrupt([](PackBuilder& b) { b.arguments[1].type = format::Type{16}; }, {"type is 16"});
  corrupt([](PackBuilder& b) { b.arguments[1].source_kind = SourceKind{10}; },
          {"source kind is 10"});
  corrupt([](PackBuilder& b) { b.arguments[1].flags = 2; }, {"flags is 2"});
  corrupt([](PackBuilder& b) { b.arguments[3].flags = 1; }, {"arguments[3]", "flags is 1"});
  corrupt([](PackBuilder& b) { b.arguments[1].divisibility = 0; }, {"divisibility is 0"});
  corrupt([](PackBuilder& b) { b.arguments[1].reserved = 1; }, {"reserved"});
  corrupt([](PackBuilder& b) { b.arguments[1].source_dim = 1; }, {"source dim is 1"});
  corrupt([](PackBuilder& b) { b.arguments[3].source_dim = 2; }, {"source dim is 2", "0..1"});
  corrupt([](PackBuilder& b) { b.arguments[1].source_name = b.text("fast"); },
          {"arguments[1]", "'fast'", "a tensor of operator 'forward'"});
  corrupt([](PackBuilder& b) { b.arguments[0].source_name = b.text("x"); }, {"source name"});
  for (const int64_t wrong : {int64_t{-1}, int64_t{1}, INT64_MIN, INT64_MAX}) {
    corrupt([&](PackBuilder& b) { b.arguments[0].constant = wrong; },
            {"arguments[0]", "descriptor is", "below 1"});
  }
}

TEST(PackRecords, ArgumentTypesAndSourcesAgree) {
  const auto pair = [](size_t argument, format::Type type, SourceKind kind) {
    corrupt(
        [&](PackBuilder& b) {
          b.arguments[argument].type = type;
          b.arguments[argument].source_kind = kind;
        },
        {"arguments[" + std::to_string(argument) + "]", "one that fills type"});
  };
  pair(0, format::Type::kPointer, SourceKind::kDescriptor);
  pair(1, format::Type::kDescriptor, SourceKind::kPointer);
  pair(1, format::Type::kDescriptor, SourceKind::kConstant);
  pair(1, format::Type::kI64, SourceKind::kPointer);
  pair(3, format::Type::kPointer, SourceKind::kStride);
  pair(3, format::Type::kI64, SourceKind::kGlobalScratch);
  pair(3, format::Type::kI64, SourceKind::kProfileScratch);
}

TEST(PackRecords, Descriptors) {
  corrupt([](PackBuilder& b) { b.descriptors[0].tensor = 0; },
          {"descriptors[0]", "tensor is empty"});
  corrupt([](PackBuilder& b) { b.descriptors[0].tensor = b.text("absent"); }, {"'absent'"});
  corrupt([](PackBuilder& b) { b.descriptors[0].tensor = b.text("mask"); }, {"rank is 2", "1"});
  corrupt([](PackBuilder& b) { b.descriptors[0].form = format::DescriptorForm::kTdm; },
          {"form is 2", "1"});
  corrupt([](PackBuilder& b) { b.descriptors[0].rank = 0; }, {"rank is 0"});
  corrupt([](PackBuilder& b) { b.descriptors[0].rank = 6; }, {"rank is 6", "1..5"});
  corrupt([](PackBuilder& b) { b.descriptors[0].element_bits = 0; }, {"element bits is 0"});
  corrupt([](PackBuilder& b) { b.descriptors[0].flags = 8; }, {"flags is 8"});
  corrupt([](PackBuilder& b) { b.descriptors[0].box[1] = 0; }, {"box is 0"});
  corrupt([](PackBuilder& b) { b.descriptors[0].box[2] = 1; }, {"box is 1", "0..0"});
  corrupt([](PackBuilder& b) { b.descriptors[0].reserved[0] = 1; }, {"reserved"});
}

TEST(PackRecords, Factors) {
  corrupt([](PackBuilder& b) { b.factors[0].axis = 3; }, {"factors[0]", "axis is 3"});
  corrupt([](PackBuilder& b) { b.factors[0].source_kind = SourceKind::kPresent; },
          {"SIZE or VALUE"});
  corrupt([](PackBuilder& b) { b.factors[0].source_name = 0; }, {"source name is empty"});
  corrupt([](PackBuilder& b) { b.factors[0].source_name = b.text("absent"); }, {"'absent'"});
  corrupt([](PackBuilder& b) { b.factors[0].source_dim = 2; }, {"source dim is 2", "0..1"});
  corrupt([](PackBuilder& b) { b.factors[0].divisor = 0; }, {"divisor is 0"});
  corrupt([](PackBuilder& b) { b.factors[0].reserved0 = 1; }, {"reserved"});
  corrupt([](PackBuilder& b) { b.factors[0].reserved1 = 1; }, {"reserved"});
}

}  // namespace
}  // namespace aotbuild
