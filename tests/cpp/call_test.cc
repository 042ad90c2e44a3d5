#include "call.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "pack_builder.h"

namespace aotbuild {
namespace {

using format::SourceKind;
using test::expect_error;
using test::FakeTensor;
using test::kFloat16;
using test::kFloat32;

constexpr uint64_t kTooFar = UINT64_MAX;

// A good call of the sample pack's operator; tests spoil one part each.
class ValidateCall : public testing::Test {
 protected:
  ValidateCall()
      : bytes_(test::sample_pack().build()),
        pack_(Pack::from_memory(bytes_.data(), bytes_.size(), "sample.aotpack")) {}

  void validate(const aotbuild_tensor* mask = nullptr) const {
    Call call;
    call.add("x", x_.get());
    call.add("out", out_.get());
    call.add("mask", mask);
    call.add("fast", int64_t{0});
    call.add("scale", 0.5);
    validate(call);
  }
  void validate(const Call& call) const {
    validate_call(*pack_, *pack_->find_operator("forward"), call);
  }
  void refused(std::initializer_list<std::string> pieces) const {
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces, [this] { validate(); });
  }

  std::vector<uint8_t> bytes_;
  std::unique_ptr<const Pack> pack_;
  FakeTensor x_{{100, 64}, kFloat16};
  FakeTensor out_{{100, 64}, kFloat16};
};

TEST_F(ValidateCall, RefusesMissingTensors) {
  Call call;
  call.add("x", x_.get());
  const auto check = [&] { validate(call); };
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'out'", "'forward'", "missing"}, check);
  call.add("out", static_cast<const aotbuild_tensor*>(nullptr));
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'out'", "is null"}, check);
}

TEST_F(ValidateCall, RefusesAnOptionalTensorThatIsNotNamed) {
  Call call;
  call.add("x", x_.get());
  call.add("out", out_.get());
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'mask'", "missing", "pass null"},
               [&] { validate(call); });
}

TEST_F(ValidateCall, RefusesUnknownAndRepeatedNames) {
  const auto with = [this](auto name, auto value) {
    Call call;
    call.add("x", x_.get());
    call.add("out", out_.get());
    call.add("mask", static_cast<const aotbuild_tensor*>(nullptr));
    call.add("fast", int64_t{0});
    call.add(name, value);
    validate(call);
  };
  const auto refused = [&](std::initializer_list<std::string> pieces, auto name, auto value) {
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces, [&] { with(name, value); });
  };
  refused({"tensor 'y'", "unknown", "x, out, mask"}, "y", x_.get());
  refused({"tensor 'x'", "twice"}, "x", x_.get());
  refused({"value 'speed'", "unknown"}, "speed", int64_t{1});
  refused({"value 'fast'", "twice"}, "fast", int64_t{1});
  EXPECT_NO_THROW(with("scale", 1.0));  // read by images only
}

TEST_F(ValidateCall, RefusesWrongRanksAndShapes) {
  x_->ndim = 3;
  refused({"'x'", "3 dimensions", "expected 2"});
  x_->ndim = -1;
  refused({"'x'", "-1 dimensions"});
  x_->ndim = 2;
  x_->shape[0] = -5;
  refused({"'x'", "size -5", "dimension 0"});
  x_->shape[0] = 100;
  x_.set_strides({-64, 1});
  refused({"'x'", "stride -64", "dimension 0"});
  x_->strides = nullptr;
  x_->shape = nullptr;
  refused({"'x'", "null shape"});
}

TEST_F(ValidateCall, RefusesWrongTypes) {
  out_->dtype.bits = 32;
  refused({"'out'", "float32", "that of tensor 'x'", "float16"});
  out_->dtype.bits = 0;
  refused({"'out'", "0 bits"});
  out_->dtype.bits = 16;
  x_->dtype.lanes = 2;
  refused({"'x'", "2 lanes"});
  x_->dtype.lanes = 1;
  const FakeTensor mask({4}, kFloat16);
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'mask'", "float16", "float32"},
               [&] { validate(mask.get()); });
}

TEST_F(ValidateCall, LastDimensionMustBeContiguous) {
  x_.set_strides({128, 2});
  refused({"'x'", "stride 2", "contiguous"});
  x_->shape[1] = 1;  // where the stride is of no effect
  EXPECT_NO_THROW(validate());
  x_->shape[1] = 0;
  EXPECT_NO_THROW(validate());
}

TEST_F(ValidateCall, OnlyEmptyTensorsMayHaveNoData) {
  x_->data = nullptr;
  refused({"'x'", "null data"});
  x_->shape[0] = 0;
  EXPECT_NO_THROW(validate());
}

TEST_F(ValidateCall, RefusesTensorsBeyondTheAddressSpace) {
  x_.set_strides({INT64_MAX, 1});
  refused({"'x'", "address space"});
}

TEST_F(ValidateCall, RefusesTensorsOfSeveralDevices) {
  out_->device.device_id = 1;
  refused({"'out'", "device 2:1", "device 2:0", "'x'"});
  out_->device = {10, 0};
  refused({"'out'", "device 10:0"});
}

TEST_F(ValidateCall, AcceptsGoodCalls) {
  EXPECT_NO_THROW(validate());
  const FakeTensor mask({4}, kFloat32);
  EXPECT_NO_THROW(validate(mask.get()));
  x_.set_strides({0, 1});  // one row, read a hundred times
  EXPECT_NO_THROW(validate());
}

TEST(Call, DeviceNeedsATensor) {
  Call call;
  call.add("mask", static_cast<const aotbuild_tensor*>(nullptr));
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"no tensor"}, [&] { call.device(); });
  const FakeTensor tensor({1}, kFloat32);
  call.add("x", tensor.get());
  EXPECT_EQ(call.device().type, 2);
  EXPECT_EQ(call.device().id, 0);
}

TEST(Call, IntegerOfWhatTheCallLacks) {
  const FakeTensor x({3, 4}, kFloat16);
  Call call;
  call.add("x", x.get());
  call.add("scale", 0.5);
  expect_error(AOTBUILD_ERROR_CONTRACT, {"value 'fast'"},
               [&] { call.integer(SourceKind::kValue, "fast", 0); });
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'scale'", "0.5", "integer"},
               [&] { call.integer(SourceKind::kValue, "scale", 0); });
  expect_error(AOTBUILD_ERROR_CONTRACT, {"tensor 'y'"},
               [&] { call.integer(SourceKind::kSize, "y", 0); });
  for (const int dim : {-1, 2}) {
    expect_error(AOTBUILD_ERROR_CONTRACT, {"dimension " + std::to_string(dim), "'x'"},
                 [&] { call.integer(SourceKind::kStride, "x", dim); });
  }
  for (const SourceKind kind : {SourceKind::kConstant, SourceKind::kDescriptor,
                                SourceKind::kGlobalScratch, static_cast<SourceKind>(77)}) {
    expect_error(AOTBUILD_ERROR_INTERNAL, {"no number"}, [&] { call.integer(kind, "x", 0); });
  }
}

TEST(Call, IntegerOfEverySource) {
  FakeTensor x({3, 4, 5}, kFloat16, 0x1000);
  x->byte_offset = 32;
  Call call;
  call.add("x", x.get());
  call.add("absent", static_cast<const aotbuild_tensor*>(nullptr));
  call.add("fast", int64_t{-7});
  EXPECT_EQ(call.integer(SourceKind::kPointer, "x", 0), 0x1020);
  EXPECT_EQ(call.integer(SourceKind::kSize, "x", 1), 4);
  EXPECT_EQ(call.integer(SourceKind::kStride, "x", 0), 20);
  EXPECT_EQ(call.integer(SourceKind::kDtype, "x", 0), kFloat16);
  EXPECT_EQ(call.integer(SourceKind::kPresent, "x", 0), 1);
  EXPECT_EQ(call.integer(SourceKind::kValue, "fast", 0), -7);
  for (const SourceKind kind : {SourceKind::kPointer, SourceKind::kSize, SourceKind::kStride,
                                SourceKind::kDtype, SourceKind::kPresent}) {
    EXPECT_EQ(call.integer(kind, "absent", 2), 0);
  }
}

TEST(Call, StridesOfCompactTensors) {
  FakeTensor x({3, 4, 5}, kFloat32);
  EXPECT_EQ(stride_of(*x, 0), 20);
  EXPECT_EQ(stride_of(*x, 2), 1);
  x.set_strides({100, 7, 2});
  EXPECT_EQ(stride_of(*x, 1), 7);
  const FakeTensor huge({2, INT64_MAX, 3}, kFloat32);
  EXPECT_EQ(stride_of(*huge, 0), INT64_MAX);
}

TEST(Call, ExtentIsTheFurthestByte) {
  FakeTensor x({3, 4}, kFloat32);
  EXPECT_EQ(extent_of(*x), 48U);
  x.set_strides({100, 2});
  EXPECT_EQ(extent_of(*x), (200U + 6U + 1U) * 4U);
  x.set_strides({0, 0});
  EXPECT_EQ(extent_of(*x), 4U);
  x->shape[1] = 0;
  EXPECT_EQ(extent_of(*x), 0U);
}

TEST(Call, ExtentOfElementsBelowAByte) {
  const FakeTensor x({3}, 0 | 4 << 8);
  EXPECT_EQ(extent_of(*x), 2U);
}

TEST(Call, ExtentThatCannotBeToldIsTooFar) {
  FakeTensor x({2, 2}, kFloat32);
  x.set_strides({-1, 1});
  EXPECT_EQ(extent_of(*x), kTooFar);
  x.set_strides({INT64_MAX, 1});
  EXPECT_EQ(extent_of(*x), kTooFar);
  const FakeTensor huge({INT64_MAX, INT64_MAX}, kFloat16);
  EXPECT_EQ(extent_of(*huge), kTooFar);
}

}  // namespace
}  // namespace aotbuild
