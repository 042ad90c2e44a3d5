#include "arguments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime_fixture.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests
using format::SourceKind;
using format::Type;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

uint16_t half(double value) { return round_to_small_float(value, 5, 10); }
uint16_t bfloat(double value) { return round_to_small_float(value, 8, 7); }

TEST(SmallFloat, Half) {
  EXPECT_EQ(half(0.0), 0x0000);
  EXPECT_EQ(half(-0.0), 0x8000);
  EXPECT_EQ(half(1.0), 0x3C00);
  EXPECT_EQ(half(-2.0), 0xC000);
  EXPECT_EQ(half(65504.0), 0x7BFF);
  EXPECT_EQ(half(65519.99), 0x7BFF);
  EXPECT_EQ(half(65520.0), 0x7C00);  // half way to the next, which is infinity
  EXPECT_EQ(half(1e300), 0x7C00);
  EXPECT_EQ(half(kInfinity), 0x7C00);
  EXPECT_EQ(half(-kInfinity), 0xFC00);
  EXPECT_EQ(half(kNan) & 0x7E00, 0x7E00);
  EXPECT_EQ(half(1.0 + 0x1p-11), 0x3C00);            // a tie goes to even
  EXPECT_EQ(half(1.0 + 0x1p-11 + 0x1p-40), 0x3C01);  // and is not rounded twice
  EXPECT_EQ(half(1.0 + 3 * 0x1p-11), 0x3C02);
  EXPECT_EQ(half(2.0 - 0x1p-12), 0x4000);  // carries into the exponent
  EXPECT_EQ(half(0x1p-14), 0x0400);
  EXPECT_EQ(half(0x1p-24), 0x0001);
  EXPECT_EQ(half(0x1p-25), 0x0000);
  EXPECT_EQ(half(0x1p-14 - 0x1p-25), 0x0400);  // largest subnormal, rounded up to a normal
  EXPECT_EQ(half(1e-300), 0x0000);
}

TEST(SmallFloat, Bfloat) {
  EXPECT_EQ(bfloat(1.0), 0x3F80);
  EXPECT_EQ(bfloat(-0.5), 0xBF00);
  EXPECT_EQ(bfloat(1.0 + 0x1p-8), 0x3F80);
  EXPECT_EQ(bfloat(1.0 + 3 * 0x1p-8), 0x3F82);
  EXPECT_EQ(bfloat(3.4e38), 0x7F80);
  EXPECT_EQ(bfloat(0x1p-133), 0x0001);
  EXPECT_EQ(bfloat(kNan) & 0x7FC0, 0x7FC0);
}

// One argument of a type, from the value "v".
class ArgumentTest : public RuntimeTest {
 protected:
  template <class T>
  std::vector<uint8_t> pass(Type type, T value, size_t size) {
    PackBuilder builder = simple_pack();
    builder.add_argument("argument", type, SourceKind::kValue, "v");
    SimpleCall simple;
    simple.call.add("v", value);
    return last_bytes(builder, simple.call, size);
  }
  static std::vector<uint8_t> last_bytes(const PackBuilder& builder, const Call& call,
                                         size_t size) {
    const std::vector<uint8_t> bytes = builder.build();
    const auto pack = Pack::from_memory(bytes.data(), bytes.size(), "pack");
    const format::Image& image = pack->images()[0];
    Arguments arguments(*pack, image, call, Scratch(), Driver::of(kDeviceCuda));
    const auto* last = static_cast<uint8_t*>(arguments.data()[image.argument_count - 1]);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(last) % size, 0U);
    return {last, last + size};
  }
  template <class T>
  void expect_range(Type type, T value, const std::string& name) {
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'argument'", name},
                 [&] { pass(type, value, 1); });
  }
};

TEST_F(ArgumentTest, ValuesThatDoNotFitAreRefused) {
  expect_range(Type::kI1, int64_t{2}, "i1");
  expect_range(Type::kI8, int64_t{128}, "i8");
  expect_range(Type::kI8, int64_t{-129}, "i8");
  expect_range(Type::kI16, int64_t{1} << 15, "i16");
  expect_range(Type::kI32, int64_t{1} << 31, "i32");
  expect_range(Type::kU8, int64_t{-1}, "u8");
  expect_range(Type::kU8, int64_t{256}, "u8");
  expect_range(Type::kU16, int64_t{1} << 16, "u16");
  expect_range(Type::kU32, int64_t{1} << 32, "u32");
  expect_range(Type::kFp16, 65520.0, "fp16");
  expect_range(Type::kFp16, -65520.0, "fp16");
  expect_range(Type::kBf16, 3.4e38, "bf16");
  expect_range(Type::kFp32, 1e39, "fp32");
}

TEST_F(ArgumentTest, ARealForAnIntegerIsRefused) {
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'v'", "integer"},
               [&] { pass(Type::kI32, 1.0, 4); });
}

TEST_F(ArgumentTest, IntegersTakeTheirOwnSize) {
  EXPECT_EQ(read<uint8_t>(pass(Type::kI1, int64_t{1}, 1)), 1);
  EXPECT_EQ(read<int8_t>(pass(Type::kI8, int64_t{-128}, 1)), -128);
  EXPECT_EQ(read<int16_t>(pass(Type::kI16, int64_t{-5}, 2)), -5);
  EXPECT_EQ(read<int32_t>(pass(Type::kI32, int64_t{INT32_MIN}, 4)), INT32_MIN);
  EXPECT_EQ(read<int64_t>(pass(Type::kI64, INT64_MIN, 8)), INT64_MIN);
  EXPECT_EQ(read<uint8_t>(pass(Type::kU8, int64_t{255}, 1)), 255);
  EXPECT_EQ(read<uint16_t>(pass(Type::kU16, int64_t{65535}, 2)), 65535);
  EXPECT_EQ(read<uint32_t>(pass(Type::kU32, int64_t{UINT32_MAX}, 4)), UINT32_MAX);
  EXPECT_EQ(read<uint64_t>(pass(Type::kU64, int64_t{7}, 8)), 7U);
}

TEST_F(ArgumentTest, RealsAreRounded) {
  EXPECT_EQ(read<uint16_t>(pass(Type::kFp16, 1.5, 2)), 0x3E00);
  EXPECT_EQ(read<uint16_t>(pass(Type::kBf16, -1.5, 2)), 0xBFC0);
  EXPECT_EQ(read<float>(pass(Type::kFp32, 0.1, 4)), 0.1F);
  EXPECT_EQ(read<double>(pass(Type::kFp64, 0.1, 8)), 0.1);
  EXPECT_EQ(read<float>(pass(Type::kFp32, int64_t{3}, 4)), 3.0F);  // an integer will do
  EXPECT_EQ(read<float>(pass(Type::kFp32, -kInfinity, 4)), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(read<float>(pass(Type::kFp32, kNan, 4))));
}

TEST_F(ArgumentTest, ConstantsPresenceAndStrides) {
  const SimpleCall simple;
  PackBuilder constant = simple_pack();
  constant.add_argument("argument", Type::kI1, SourceKind::kConstant).constant = 1;
  EXPECT_EQ(read<uint8_t>(last_bytes(constant, simple.call, 1)), 1);
  PackBuilder stride = simple_pack();
  stride.add_argument("argument", Type::kI64, SourceKind::kStride, "x", 0);
  EXPECT_EQ(read<int64_t>(last_bytes(stride, simple.call, 8)), 32);
  PackBuilder dtype = simple_pack();
  dtype.add_argument("argument", Type::kI32, SourceKind::kDtype, "x");
  EXPECT_EQ(read<int32_t>(last_bytes(dtype, simple.call, 4)), kFloat16);
  PackBuilder present = simple_pack();
  present.add_argument("argument", Type::kI32, SourceKind::kPresent, "x");
  EXPECT_EQ(read<int32_t>(last_bytes(present, simple.call, 4)), 1);
}

TEST_F(ArgumentTest, TooManyArgumentsAreRefused) {
  PackBuilder builder = simple_pack();
  while (builder.images[0].argument_count <= Arguments::kMaxArguments) {
    builder.add_argument("argument", Type::kI32, SourceKind::kConstant);
  }
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"257", "256"},
               [&] { last_bytes(builder, SimpleCall().call, 4); });
}

TEST_F(ArgumentTest, TooManyDescriptorsAreRefused) {
  PackBuilder builder = simple_pack();
  format::Descriptor descriptor = {};
  descriptor.tensor = builder.text("x");
  descriptor.form = format::DescriptorForm::kTensorMap;
  descriptor.rank = 2;
  descriptor.element_type = 6;
  descriptor.element_bits = 16;
  descriptor.box[0] = descriptor.box[1] = 32;
  builder.descriptors.push_back(descriptor);
  for (size_t i = 0; i <= Arguments::kMaxDescriptors; ++i) {
    builder.add_argument("argument", Type::kDescriptor, SourceKind::kDescriptor);
  }
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"16 tensor descriptors"},
               [&] { last_bytes(builder, SimpleCall().call, 4); });
}

}  // namespace
}  // namespace aotbuild
